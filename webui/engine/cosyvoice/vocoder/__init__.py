"""Mel to wave. `Vocoder` holds weights, `VocoderState` is one stream."""

from .dims import VocoderDims
from .model import Vocoder
from .stream import FULL, STEADY, ContextWindow, VocoderState

__all__ = ["FULL", "STEADY", "ContextWindow", "Vocoder", "VocoderDims", "VocoderState"]
