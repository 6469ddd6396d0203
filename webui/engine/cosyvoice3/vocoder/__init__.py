"""Mel to wave by layers that look left.

`CausalVocoder` holds weights, `WaveStream` is one stream, the same as the whole to rounding.
"""

from .model import CausalVocoder
from .state import FADE_SAMPLES, HELD_FRAMES, WaveStream, risen

__all__ = ["FADE_SAMPLES", "HELD_FRAMES", "CausalVocoder", "WaveStream", "risen"]
