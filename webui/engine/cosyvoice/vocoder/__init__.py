"""Mel to wave. `Vocoder` holds weights, `VocoderState` is one stream."""

from .dims import VocoderDims
from .model import Vocoder
from .state import EARLY, FULL, Reach, VocoderState

__all__ = ["EARLY", "FULL", "Reach", "Vocoder", "VocoderDims", "VocoderState"]
