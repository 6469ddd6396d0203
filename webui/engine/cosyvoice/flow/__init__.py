"""Speech ids to mel. `FlowModel` holds weights, `VoiceState` what a voice costs once, `FlowState` what one request remembers."""

from .blocks import Blocks
from .dims import FlowDims
from .model import FlowModel
from .state import FlowState, VoiceState

__all__ = ["Blocks", "FlowDims", "FlowModel", "FlowState", "VoiceState"]
