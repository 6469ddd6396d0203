"""Euler steps (ten as published) with guidance from noise to mel.

The times are constants of the model, and so is a causal model's noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, wait

import torch
from torch import nn

from .dims import EULER_STEPS, GUIDANCE, MAX_FRAMES, MEL_BANDS
from .unet import BatchCache, EstimatorCache


def fixed_noise() -> torch.Tensor:
    """(1, 15000, 80) float32: what seed 0 draws on a CPU, in (batch, bands, frames) order.

    The global generator is left alone.
    """
    return (
        torch.randn(1, MEL_BANDS, MAX_FRAMES, generator=torch.Generator().manual_seed(0))
        .transpose(1, 2)
        .contiguous()
    )


def step_times(steps: int = EULER_STEPS) -> torch.Tensor:
    """(steps + 1,) float32, cosine spaced from 0 to 1."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * torch.pi)


class CFMSolver(nn.Module):
    def __init__(self, estimator: nn.Module, euler_steps: int):
        """estimator(rows (b, n, 320) = x, mu, speaker, cond; what its time_rows gave for this time;
        past; mask) -> velocity (b, n, 80)
        """
        super().__init__()
        self.estimator, self.euler_steps = estimator, euler_steps
        self.beside: Executor | None = (
            # where the second guidance row is computed while the first one is; None: both in one
            # call
            None
        )

    def pack(self) -> None:
        weight = next(self.estimator.parameters())
        self.times = step_times(self.euler_steps)
        self.steps = self.times.diff().tolist()
        self.time_table = self.estimator.time_rows(self.times[:-1].to(weight.device))

    def guided(
        self,
        x: torch.Tensor,
        mu: torch.Tensor,
        speakers: torch.Tensor,
        cond: torch.Tensor,
        pasts: Sequence[list[EstimatorCache]] | None = None,
        mask=None,
    ) -> torch.Tensor:
        """Of b requests, from noise to mel: x, mu, cond (b, n, 80), speakers (b, 80), the pasts of
        each, one mask for all -> (b, n, 80), as exact as x.
        """
        count, frames, _ = mu.shape
        rows = mu.new_zeros(
            count, 2, frames, 4 * MEL_BANDS
        )  # the second row of each is the unconditioned one
        rows[:, 0, :, MEL_BANDS:] = torch.cat(
            [mu, speakers[:, None].expand(count, frames, -1), cond], -1
        )
        for k, step in enumerate(self.steps):
            rows[..., :MEL_BANDS] = x[:, None]
            v = self._velocity(rows, k, [own[k] for own in pasts] if pasts else None, mask).to(
                x.dtype
            )
            x = x + step * ((1 + GUIDANCE) * v[:, 0] - GUIDANCE * v[:, 1])
        return x

    def _velocity(
        self,
        rows: torch.Tensor,
        k: int,
        pasts: list[EstimatorCache] | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """(b, 2, n, 320) -> (b, 2, n, 80).

        The two rows of a request meet nowhere inside the network, so two cores may take one each.
        """
        time, frames = self.time_table[k], rows.shape[2]
        if self.beside is None:
            return self._alone(rows.flatten(0, 1), time, pasts, mask).unflatten(0, rows.shape[:2])
        for past in pasts or ():
            past.store.room_for(frames)
        halves = (
            (None, None)
            if pasts is None
            else ([past.row(0) for past in pasts], [past.row(1) for past in pasts])
        )
        other = self.beside.submit(self._alone, rows[:, 1], time, halves[1], mask)
        try:
            v = self._alone(rows[:, 0], time, halves[0], mask)
        finally:
            wait([other])  # its memory goes to others when this request fails
        v = torch.stack((v, other.result()), 1)
        for past, *parts in zip(pasts, *halves, strict=True) if pasts else ():
            past.join(parts, frames)
        return v

    @torch.inference_mode()
    def _alone(
        self,
        rows: torch.Tensor,
        time: torch.Tensor,
        pasts: Sequence[EstimatorCache] | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        if pasts is None or len(pasts) == 1:
            return self.estimator(rows, time, pasts[0] if pasts else None, mask)
        joint = BatchCache(pasts)
        v = self.estimator(rows, time, joint, mask)
        joint.part()
        return v


class CausalCFM(CFMSolver):
    """From the noise that belongs to a causal model, not to a request."""

    def pack(self) -> None:
        super().pack()
        weight = next(self.estimator.parameters())
        self.noise = fixed_noise().to(
            device=weight.device, dtype=torch.promote_types(weight.dtype, torch.float32)
        )

    def solve(
        self,
        start: int,
        mu: torch.Tensor,
        speaker: torch.Tensor,
        cond: torch.Tensor,
        pasts: list[EstimatorCache] | None,
        mask,
    ) -> torch.Tensor:
        """Frames start..start+n of the utterance. mu, cond (1, n, 80), speaker (1, 80) -> mel (1,
        n, 80), at least float32.
        """
        return self.solve_many([start], mu, speaker, cond, None if pasts is None else [pasts], mask)

    def solve_many(
        self,
        starts: Sequence[int],
        mu: torch.Tensor,
        speakers: torch.Tensor,
        cond: torch.Tensor,
        pasts: Sequence[list[EstimatorCache]] | None,
        mask,
    ) -> torch.Tensor:
        """As `solve` for b requests: starts (b,), the rest as in `guided`."""
        return self.guided(
            torch.cat([self.noise[:, start : start + mu.shape[1]] for start in starts]),
            mu,
            speakers,
            cond,
            pasts,
            mask,
        )
