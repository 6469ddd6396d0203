"""Speech ids to mel by a transformer: `DitFlow` holds weights.

What voices and requests remember is `..cosyvoice.flow`'s.
"""

from .dims import DitDims
from .model import DitFlow

__all__ = ["DitDims", "DitFlow"]
