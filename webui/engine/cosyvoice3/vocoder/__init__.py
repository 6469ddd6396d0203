"""Mel to wave by layers that look left. `CausalVocoder` holds weights, `WaveStream` is one stream, the same as the whole to rounding."""

from .model import CausalVocoder
from .state import HELD_FRAMES, WaveStream

__all__ = ["HELD_FRAMES", "CausalVocoder", "WaveStream"]
