"""Speech ids to mel.

`FlowModel` holds weights, `VoiceState` what a voice costs once, `FlowState` what one request
remembers.
"""

from .blocks import Blocks
from .causal_flow import CausalFlow, FlowModel
from .dims import FlowDims
from .stream import FlowState, VoiceState, step_many

__all__ = ["Blocks", "CausalFlow", "FlowDims", "FlowModel", "FlowState", "VoiceState", "step_many"]
