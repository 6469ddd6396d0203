"""Speech ids to mel, a hop at a time.

`HopFlow` holds weights, `HopVoice` what a voice brings, `HopState` what one request remembers.
"""

from .dims import HopDims
from .model import HopFlow
from .state import HopState, HopVoice, step_many

__all__ = ["HopDims", "HopFlow", "HopState", "HopVoice", "step_many"]
