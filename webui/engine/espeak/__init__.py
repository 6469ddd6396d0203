"""The built-in voice: speaks at once on any machine, in worker processes.

Importing this loads no signal processing.
"""

from .engine import EspeakEngine
from .instructions import understood
from .text_plan import cannot_read

__all__ = ["EspeakEngine", "cannot_read", "understood"]
