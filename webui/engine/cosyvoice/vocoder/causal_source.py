"""The excitation of this generation: its phases stand still within a frame and jump to the next, as
the model was trained.
"""

from __future__ import annotations

import math

import torch

from .dims import SINE_LEVEL
from .source import Source, cycles_per_frame


class StairSource(Source):
    """noise: uniform in 0..1, never negative."""

    def waves(self, f0: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        cycles = cycles_per_frame(f0).cumsum(0) + (0.0 if before is None else before)
        return ((2 * math.pi * (cycles % 1.0)).sin() * SINE_LEVEL).repeat_interleave(
            self.dims.frame_samples, 0
        )
