"""Speech ids from scores: how long a segment may be, and the decode step of a language model whose
scores come to the host.

Blind to how scores are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from .interface import DecodedTokens, KVCache, SamplingRequest, SpeechDims
from .sampler import Sampler

MIN_IDS_PER_TEXT_ID, MAX_IDS_PER_TEXT_ID = 2, 20  # the training's limits: speech ids per text id

Sample = Callable[[Tensor, Sequence[int]], int]  # (scores (V,), ids so far) -> id


class StopCriteria:
    """The ids of one segment as they are drawn: at least `least` and at most `most`.

    The end id is masked before the minimum; the other marks stop whenever `sample` returns them.
    """

    def __init__(self, dims: SpeechDims, sample: Sample, least: int, most: int):
        self._end, self._codes, self._sample = dims.end, dims.speech_codes, sample
        self.least, self.most = least, most
        self.ids: list[int] = []
        self.is_over = most < 1

    def draw(self, scores: Tensor) -> int | None:
        """scores: (rows,), written to. The next id, or None at the end."""
        if len(self.ids) < self.least:
            scores[self._end] = -torch.inf
        chosen = self._sample(scores, self.ids)
        if chosen >= self._codes:
            self.is_over = True
            return None
        self.ids.append(chosen)
        self.is_over = len(self.ids) >= self.most
        return chosen


class HostCache(KVCache, Protocol):
    """drawing: set by `start`."""

    drawing: StopCriteria


class HostDecoding:
    """`start` and `decode` of a LanguageModel, over its `step` and `step_many`."""

    max_steps, positions = 1, None

    def start(self, x: Tensor, past: HostCache, sampling: SamplingRequest) -> DecodedTokens:
        sample = Sampler(sampling.seed, sampling.rule, never=self.dims.forbidden_ids(self.dims.end))
        past.drawing = StopCriteria(self.dims, sample, sampling.least, sampling.most)
        return _sample(past.drawing, self.step(x, past)[0])

    def decode(self, pasts: Sequence[HostCache], steps: int = 1) -> list[DecodedTokens]:
        scores = self.step_many([past.drawing.ids[-1] for past in pasts], pasts).cpu()
        return [_sample(past.drawing, row) for past, row in zip(pasts, scores, strict=True)]


def _sample(drawing: StopCriteria, scores: Tensor) -> DecodedTokens:
    """What goes wrong in one row's draw is that row's: the others have gone on."""
    try:
        chosen = drawing.draw(scores)
    except Exception as error:
        return DecodedTokens([], True, error)
    return DecodedTokens([] if chosen is None else [chosen], drawing.is_over)
