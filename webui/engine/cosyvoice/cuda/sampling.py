"""Repetition-aware draws as tensor functions of fixed shape: the rule of sampler.py for many
requests at once, without the host.

Each request brings its own row of random numbers, the very ones its `Sampler` would draw: they
depend on its seed alone, not on its place, its batch or its neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..llm.interface import SamplingRequest, SpeechDims
from ..llm.sampler import RasRule
from .capture import upload

NONE = -1  # in place of an id: nothing was drawn


def chances(seed: int, count: int) -> Tensor:
    """The first `count` random numbers of a Sampler with this seed, (count,) fp64 on the CPU."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _invert(weights: Tensor, at: Tensor) -> Tensor:
    """weights (b, n), at (b, 1) in 0..1 -> the column (b, 1) that `at` falls into, by the
    cumulative sum in fp64.
    """
    steps = weights.double().cumsum(-1)
    column = torch.searchsorted(steps, at * steps[:, -1:], right=True)
    numbers = torch.arange(weights.shape[-1], device=weights.device)
    last = (numbers * (weights > 0)).amax(
        -1, keepdim=True
    )  # the product above may round up to the whole sum
    return torch.minimum(column, last)


def best(probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """probs (b, V) fp32, V <= 65536 -> ids and probabilities (b, count) by falling probability, of
    equals the lower id first.

    The bits of a probability and its id make one number, which has no equal: topk then has no
    choice where it would be free to choose.
    """
    size = probs.shape[-1]
    backward = size - 1 - torch.arange(size, device=probs.device)
    keys = (probs.view(torch.int32).long() << 16) | backward
    ids = size - 1 - (keys.topk(count).values & 0xFFFF)
    return ids, probs.gather(-1, ids)


def choose(
    scores: Tensor, recent: Tensor, first: Tensor, second: Tensor, rule: RasRule
) -> tuple[Tensor, Tensor]:
    """scores (b, V) fp32, -inf for what is masked; recent (b, window) ids, NONE for none; first,
    second (b, 1) fp64 random numbers. -> ids (b, 1), and whether `second` was used (b, 1).
    """
    ids, probs = best(scores.softmax(-1), min(rule.top_k, scores.shape[-1]))
    keep = probs.cumsum(-1) - probs < rule.top_p
    keep[:, 0].fill_(True)
    chosen = ids.gather(-1, _invert(probs * keep, first))
    is_repeated = (recent == chosen).sum(-1, keepdim=True) >= rule.window * rule.tau
    other_scores = scores.scatter(-1, chosen, -torch.inf)
    return torch.where(is_repeated, _invert(other_scores.softmax(-1), second), chosen), is_repeated


class DeviceSampler:
    """What the draws of `slots` requests remember, on the device. Row i belongs to slot i."""

    def __init__(
        self, slots: int, max_ids: int, rule: RasRule, dims: SpeechDims, device: torch.device | str
    ):
        self.rule, self.codes, self.end = rule, dims.speech_codes, dims.end
        self.chances = torch.zeros(slots, 2 * max_ids, dtype=torch.float64, device=device)

        def number(*shape: int) -> Tensor:
            return torch.zeros(slots, *shape, dtype=torch.long, device=device)

        self.spent, self.n_drawn, self.least, self.most = number(), number(), number(), number()
        self.recent = number(rule.window)
        self.done = torch.ones(slots, dtype=torch.bool, device=device)

    @property
    def rows(self) -> list[Tensor]:
        return [
            self.chances,
            self.spent,
            self.n_drawn,
            self.least,
            self.most,
            self.recent,
            self.done,
        ]

    def begin(self, slot: int, draw: SamplingRequest) -> None:
        count = min(2 * draw.most, self.chances.shape[1])
        upload(self.chances[slot, :count], chances(draw.seed, count))
        self.spent[slot].zero_()
        self.n_drawn[slot].zero_()
        self.least[slot].fill_(draw.least)
        self.most[slot].fill_(draw.most)
        self.recent[slot].fill_(NONE)
        self.done[slot].fill_(draw.most < 1)

    def next(self, scores: Tensor, row_mask: Tensor) -> Tensor:
        """scores (b, V) of the first b slots, wanted (b,) -> ids (b,): the end id ends a request,
        NONE is given where none is drawn. A row that is not wanted, or done, stays as it is.
        """
        b = len(row_mask)
        is_active = row_mask & ~self.done[:b]
        n_drawn, spent = self.n_drawn[:b], self.spent[:b]
        numbers = torch.arange(scores.shape[-1], device=scores.device)
        early = (n_drawn < self.least[:b])[:, None]
        is_end = numbers == self.end
        masked = scores.masked_fill(
            ((numbers >= self.codes) & ~is_end) | (early & is_end), -torch.inf
        )
        at = spent.clamp(max=self.chances.shape[1] - 2)[:, None]
        first, second = self.chances[:b].gather(1, at), self.chances[:b].gather(1, at + 1)
        chosen, is_repeated = choose(masked, self.recent[:b], first, second, self.rule)
        chosen = chosen[:, 0]
        ring_index = (n_drawn % self.rule.window)[:, None]
        before = self.recent[:b].gather(1, ring_index)
        self.recent[:b].scatter_(
            1, ring_index, torch.where(is_active[:, None], chosen[:, None], before)
        )
        n_drawn += is_active
        spent += (1 + is_repeated[:, 0].long()) * is_active
        self.done[:b] |= is_active & ((chosen == self.end) | (n_drawn >= self.most[:b]))
        return chosen.masked_fill(~is_active, NONE)
