"""Mel to wave. `Vocoder` holds weights, `VocoderState` is one stream."""

from .dims import VocoderDims
from .model import Vocoder
from .state import FULL, STEADY, Reach, VocoderState

__all__ = ["FULL", "STEADY", "Reach", "Vocoder", "VocoderDims", "VocoderState"]
