"""Which id comes next: repetition-aware sampling with a random stream of its own per request.

Knows scores and the ids so far, no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RasRule:
    """The published defaults.

    An id seen `window * tau` times or more among the last `window` ids is drawn anew from all
    others.
    """

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau: float = 0.1


def top_k_top_p(scores: Tensor, rule: RasRule) -> tuple[Tensor, Tensor]:
    """ids (k,) by falling probability (ties: lower id first) and their unscaled probabilities (k,),
    of scores (V,) log-probabilities.
    """
    every = scores.softmax(-1)
    probs, ids = every.topk(min(rule.top_k + 1, len(every)))
    if (
        probs[1:] == probs[:-1]
    ).any():  # equals come in no order from topk; a sort of all ids costs eight times as much
        probs, ids = every.sort(descending=True, stable=True)
    probs, ids = probs[: rule.top_k], ids[: rule.top_k]
    before = probs.cumsum(0) - probs
    keep = before < rule.top_p
    keep[0] = True
    return ids[keep], probs[keep]


def is_repeated(chosen: int, history: Sequence[int], rule: RasRule) -> bool:
    return list(history[-rule.window :]).count(chosen) >= rule.window * rule.tau


def exact_distribution(scores: Tensor, history: Sequence[int], rule: RasRule) -> Tensor:
    """The exact probability of every id under the rule, (V,) fp64."""
    scores = scores.double()
    ids, weights = top_k_top_p(scores, rule)
    out = torch.zeros_like(scores)
    for chosen, share in zip(ids.tolist(), (weights / weights.sum()).tolist(), strict=True):
        if is_repeated(chosen, history, rule):
            rest = scores.clone()
            rest[chosen] = -torch.inf
            out += share * rest.softmax(-1)
        else:
            out[chosen] += share
    return out


class Sampler:
    """Repetition-aware draws of one request.

    Its stream of random numbers depends on `seed` alone, on any device and beside any neighbour.
    """

    def __init__(self, seed: int, rule: RasRule | None = None, never: Sequence[int] = ()):
        """seed: 0 ..

        2**63-1. never: ids that are not drawn at all, e.g. the stop ids no training example ends
        with.
        """
        self.rule, self._never = rule or RasRule(), torch.tensor(list(never), dtype=torch.long)
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, scores: Tensor, history: Sequence[int]) -> int:
        """scores: (V,) log-probabilities, -inf for what is masked; history: the ids drawn so
        far.
        """
        scores = scores.detach().to("cpu", torch.float32, copy=True)
        scores[self._never] = -torch.inf
        ids, weights = top_k_top_p(scores, self.rule)
        chosen = int(ids[self._draw(weights)])
        if is_repeated(chosen, history, self.rule):
            scores[chosen] = -torch.inf
            chosen = self._draw(scores.softmax(-1))
        return chosen

    def _draw(self, weights: Tensor) -> int:
        """One index in proportion to `weights`, by inverting the cumulative sum in fp64."""
        steps = weights.double().cumsum(0)
        at = torch.rand(1, generator=self._random, dtype=torch.float64) * steps[-1]
        last = int(weights.nonzero()[-1])  # the product above may round up to the whole sum
        return min(int(torch.searchsorted(steps, at, right=True)), last)


def greedy(scores: Tensor, history: Sequence[int]) -> int:
    """The most probable id; for tests and comparisons."""
    return int(scores.argmax())
