"""An engine in a process of its own, seen as an Engine: what befalls it there ends its streams with
a named error, never the studio.
"""

from .engine import RemoteEngine
from .timeouts import Timeouts

__all__ = ["RemoteEngine", "Timeouts"]
