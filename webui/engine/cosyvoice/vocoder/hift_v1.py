"""The first generation's vocoder: its numbers, and the excitation that adds up its phase sample by
sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from ..dims_v1 import FRAME_SAMPLES, RATE_HZ
from ..random_noise import random_numbers
from . import Vocoder, VocoderDims
from .dims import HARMONICS, SINE_LEVEL, sizes
from .source import Source

PHASES = 1 << 48  # place of a request's random numbers for them


def dims_of(config: Mapping[str, object]) -> VocoderDims:
    dims = VocoderDims(
        rate_hz=RATE_HZ,
        up_rates=(8, 8),
        up_kernels=(16, 16),
        source_kernels=(7, 11),
        **sizes(config),
    )
    if dims.frame_samples != FRAME_SAMPLES:
        raise ValueError(f"a frame must have {FRAME_SAMPLES} samples")
    return dims


class SteppedSource(Source):
    """Each sample moves the phase by its own frame's frequency, so frames can be computed from
    wherever the phase is known. Harmonics start where chance puts them, once in a request; that is
    heard.
    """

    def start(self, seed: int | None) -> torch.Tensor:
        """(9,) cycles; the fundamental's is 0."""
        cycles = (
            np.zeros(HARMONICS)
            if seed is None
            else random_numbers(seed, PHASES).uniform(-0.5, 0.5, HARMONICS)
        )
        cycles[0] = 0.0
        return torch.from_numpy(cycles)

    def _steps(self, f0: torch.Tensor) -> torch.Tensor:
        """(..., frames, 9) fp64: cycles from one sample to the next."""
        harmonics = torch.arange(1, HARMONICS + 1, dtype=f0.dtype, device=f0.device)
        return (f0[..., None] * harmonics / self.dims.rate_hz).double()

    def moves(self, f0: torch.Tensor) -> torch.Tensor:
        return self._steps(f0) * self.dims.frame_samples

    def waves(
        self, f0: torch.Tensor, before: torch.Tensor, is_start: bool | torch.Tensor = False
    ) -> torch.Tensor:
        steps, frame_samples = self._steps(f0), self.dims.frame_samples
        before = before[..., None, :]
        ends = (steps * frame_samples).cumsum(-2) + before
        starts = torch.cat([before, ends[..., :-1, :]], -2)
        within = torch.arange(1, frame_samples + 1, dtype=torch.float64, device=f0.device)
        phase = starts[..., None, :] + within[:, None] * steps[..., None, :]
        return (2 * math.pi * (phase.flatten(-3, -2) % 1.0)).sin() * SINE_LEVEL


class VocoderV1(Vocoder):
    excitation = SteppedSource
