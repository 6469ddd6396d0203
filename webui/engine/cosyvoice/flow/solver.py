"""Euler steps (ten as published) with guidance from fixed noise to mel. The noise and the times are constants of the model, not of a request."""

from __future__ import annotations

from concurrent.futures import Executor, wait

import torch
from torch import nn

from .dims import EULER_STEPS, GUIDANCE, MAX_FRAMES, MEL_BANDS, FlowDims
from .estimator import Estimator, EstimatorPast


def fixed_noise() -> torch.Tensor:
    """(1, 15000, 80) float32: what seed 0 draws on a CPU, in (batch, bands, frames) order. The global generator is left alone."""
    return torch.randn(1, MEL_BANDS, MAX_FRAMES, generator=torch.Generator().manual_seed(0)).transpose(1, 2).contiguous()


def step_times(steps: int = EULER_STEPS) -> torch.Tensor:
    """(steps + 1,) float32, cosine spaced from 0 to 1."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * torch.pi)


class Decoder(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        self.estimator, self.euler_steps = Estimator(dims), dims.euler_steps
        self.beside: Executor | None = None  # where the second guidance row is computed while the first one is; None: both in one call

    def pack(self) -> None:
        weight = self.estimator.time_mlp.linear_1.weight
        self.times = step_times(self.euler_steps)
        self.steps = self.times.diff().tolist()
        self.noise = fixed_noise().to(device=weight.device, dtype=torch.promote_types(weight.dtype, torch.float32))
        self.time_table = self.estimator.time_rows(self.times[:-1].to(weight.device))

    def solve(
        self, start: int, mu: torch.Tensor, speaker: torch.Tensor, cond: torch.Tensor, pasts: list[EstimatorPast] | None, mask
    ) -> torch.Tensor:
        """Frames start..start+n of the utterance. mu, cond (1, n, 80), speaker (1, 80) -> mel (1, n, 80), at least float32."""
        frames = mu.shape[1]
        x = self.noise[:, start : start + frames]
        rows = mu.new_zeros(2, frames, 4 * MEL_BANDS)  # the second row is the unconditioned one
        rows[:1, :, MEL_BANDS:] = torch.cat([mu, speaker[:, None].expand(1, frames, -1), cond], -1)
        for k, step in enumerate(self.steps):
            rows[:, :, :MEL_BANDS] = x
            v = self._velocity(rows, k, pasts[k] if pasts else None, mask).to(x.dtype)
            x = x + step * ((1 + GUIDANCE) * v[:1] - GUIDANCE * v[1:])
        return x

    def _velocity(self, rows: torch.Tensor, k: int, past: EstimatorPast | None, mask: torch.Tensor | None) -> torch.Tensor:
        """(2, n, 320) -> (2, n, 80). The two rows meet nowhere inside the network, so two cores may take one each."""
        time = self.time_table[k]
        if self.beside is None or past is None:
            return self.estimator(rows, time, past, mask)
        past.store.room_for(rows.shape[1])
        parts = past.row(0), past.row(1)
        other = self.beside.submit(self._alone, rows[1:], time, parts[1], mask)
        try:
            v = self.estimator(rows[:1], time, parts[0], mask)
        finally:
            wait([other])  # its memory goes to others when this request fails
        v = torch.cat((v, other.result()))
        past.join(parts, rows.shape[1])
        return v

    @torch.inference_mode()
    def _alone(self, row: torch.Tensor, time: torch.Tensor, past: EstimatorPast, mask: torch.Tensor | None) -> torch.Tensor:
        return self.estimator(row, time, past, mask)
