"""The excitation of this generation: its phases stand still within a frame and jump to the next, as
the model was trained.
"""

from __future__ import annotations

import math

import torch

from .dims import SINE_LEVEL
from .source import Source


class StairSource(Source):
    """noise: uniform in 0..1, never negative."""

    def waves(
        self, f0: torch.Tensor, before: torch.Tensor, is_start: bool | torch.Tensor = False
    ) -> torch.Tensor:
        cycles = self.moves(f0).cumsum(-2) + before[..., None, :]
        return ((2 * math.pi * (cycles % 1.0)).sin() * SINE_LEVEL).repeat_interleave(
            self.dims.frame_samples, -2
        )
