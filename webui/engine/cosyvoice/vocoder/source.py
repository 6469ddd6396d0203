"""The excitation: nine harmonics with a phase in closed form, and noise that belongs to absolute
sample positions.

Both can start anywhere in the utterance, which is what makes a stream equal to a whole. Phases are
fp64 on the CPU on every device: they reach a million radians, and some accelerators have no fp64.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .. import random_noise
from .dims import (
    FRAME_SAMPLES,
    HARMONICS,
    RATE_HZ,
    SINE_LEVEL,
    UNVOICED_NOISE,
    VOICED_HZ,
    VOICED_NOISE,
    VocoderDims,
)

NOISE_BLOCK = 10 * FRAME_SAMPLES


def noise_at(seed: int, start: int, count: int) -> torch.Tensor:
    """The excitation's noise of the samples start..start+count of the utterance, (count, 9)."""
    return random_noise.noise_at(seed, start, count, HARMONICS, NOISE_BLOCK)


def cycles_per_frame(f0: torch.Tensor) -> torch.Tensor:
    """f0 (..., frames) in Hz -> (..., frames, 9) fp64: by how many cycles each harmonic moves from
    one frame to the next.
    """
    harmonics = torch.arange(1, HARMONICS + 1, dtype=f0.dtype, device=f0.device)
    return (f0[..., None] * harmonics / RATE_HZ % 1).double() * FRAME_SAMPLES


def sines(moves: torch.Tensor, before: torch.Tensor, is_start: bool | torch.Tensor) -> torch.Tensor:
    """moves (..., frames, 9) from `cycles_per_frame`; before (..., 9): cycles moved ahead of the
    first of these frames; is_start: of all, or (..., 1, 1) -> (..., samples, 9) fp64.

    The phase runs straight from frame centre to frame centre. Half a frame at the start of the
    utterance, and half a frame at the end of every call, stands still, as the model was trained; a
    later call replaces the latter.
    """
    frames = moves.shape[-2]
    before = before[..., None, :]
    at = (
        torch.cat([before, before + moves.cumsum(-2)], -2) % 1.0
    )  # at[k]: just before frame k, at[k+1]: at the centre of frame k
    samples = torch.arange(FRAME_SAMPLES, dtype=torch.float64, device=moves.device)
    within = (samples + 0.5) / FRAME_SAMPLES
    half = FRAME_SAMPLES // 2
    ahead = F.pad(moves, (0, 0, 0, 1))
    # rows between neighbouring centres: half a frame before centre 0, then centre k to k+1, then
    # half a frame after the last
    phase = at[..., None, :] + within[:, None] * ahead[..., None, :]
    phase = phase.flatten(-3, -2)[..., half : half + frames * FRAME_SAMPLES, :]
    still = at[..., 1:2, :].expand_as(phase[..., :half, :])
    if not isinstance(is_start, bool):
        still = torch.where(is_start, still, phase[..., :half, :])
    if is_start is not False:
        phase = torch.cat([still, phase[..., half:, :]], -2)
    return (2 * math.pi * (phase % 1.0)).sin() * SINE_LEVEL


class Source(nn.Module):
    """`start`, `moves` and `waves` are a generation's own; the rest is the same in all."""

    def __init__(self, dims: VocoderDims):
        super().__init__()
        self.dims = dims
        self.l_linear = nn.Linear(HARMONICS, 1)

    def start(self, seed: int | None) -> torch.Tensor | None:
        """`before` of an utterance's first frame. seed None: no random phases."""
        return None

    def moves(self, f0: torch.Tensor) -> torch.Tensor:
        """f0 (..., frames) -> (..., frames, 9) fp64, by how many cycles each frame moves"""
        return cycles_per_frame(f0)

    def waves(
        self, f0: torch.Tensor, before: torch.Tensor, is_start: bool | torch.Tensor = False
    ) -> torch.Tensor:
        """f0 (..., frames) of neighbouring frames, before (..., 9), is_start: see `sines` ->
        (..., samples, 9) fp64
        """
        return sines(self.moves(f0), before, is_start)

    def after(self, f0: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        """`before` of the frame behind these."""
        moved = self.moves(f0).sum(0)
        return (moved if before is None else before + moved) % 1.0

    def forward(
        self, f0: torch.Tensor, noise: torch.Tensor | None, before: torch.Tensor | None = None
    ) -> torch.Tensor:
        """f0 (frames,) of neighbouring frames; noise (samples, 9) standard normal or None for none;
        before (9,): see `waves`, None at the start of the utterance. -> (1, 1, samples)
        """
        f0, is_start = f0.cpu(), before is None
        if is_start:
            before = torch.zeros(HARMONICS, dtype=torch.float64)
        return self.excite(f0, noise, before, is_start)[None]

    def excite(
        self,
        f0: torch.Tensor,
        noise: torch.Tensor | None,
        before: torch.Tensor,
        is_start: bool | torch.Tensor,
    ) -> torch.Tensor:
        """As `forward`, of any number of streams, where f0 is -> (..., 1, samples)"""
        waves = self.waves(f0, before, is_start).to(f0.dtype)
        voiced = (f0 > VOICED_HZ).to(f0.dtype).repeat_interleave(self.dims.frame_samples, -1)
        mixed = waves * voiced[..., None]
        if noise is not None:
            mixed += noise.to(f0.dtype) * (
                UNVOICED_NOISE + (VOICED_NOISE - UNVOICED_NOISE) * voiced[..., None]
            )
        return self.l_linear(mixed.to(self.l_linear.weight)).tanh().mT
