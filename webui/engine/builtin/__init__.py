"""The built-in voice: speaks at once on any machine, in worker processes. Importing this loads no signal processing."""

from .engine import BuiltinEngine
from .instructions import understood

__all__ = ["BuiltinEngine", "understood"]
