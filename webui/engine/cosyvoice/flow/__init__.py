"""Speech ids to mel.

`FlowModel` holds weights, `VoiceState` what a voice costs once, `FlowState` what one request
remembers.
"""

from .blocks import Blocks
from .dims import FlowDims
from .model import CausalFlow, FlowModel
from .state import FlowState, VoiceState, step_many

__all__ = ["Blocks", "CausalFlow", "FlowDims", "FlowModel", "FlowState", "VoiceState", "step_many"]
