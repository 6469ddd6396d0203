"""The built-in voice: speaks at once on any machine, in worker processes.

Importing this loads no signal processing.
"""

from .engine import BuiltinEngine
from .instructions import understood
from .script import cannot_read

__all__ = ["BuiltinEngine", "cannot_read", "understood"]
