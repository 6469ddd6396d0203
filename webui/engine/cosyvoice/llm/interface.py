"""What a request needs of a language model, whichever it is and whoever computes it: torch, ONNX
Runtime or captured graphs. Blind to text and to sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


class SpeechDims(Protocol):
    """LmDims, or another network's own.

    Speech ids are 0..speech_codes-1; the rows behind them are marks, of which any ends a text.
    """

    speech_codes: int

    @property
    def rows(self) -> int: ...

    @property
    def end(self) -> int: ...

    def forbidden_ids(self, *drawn: int) -> tuple[int, ...]:
        """The marks but `drawn`."""

    def cache_bytes(self, tokens: int, bytes_per_value: int) -> int:
        """What one request remembers of `tokens` positions."""


class KVCache(Protocol):
    """What one request remembers of the model.

    Not shared, except a prefix, which is only forked.
    """

    length: int

    @property
    def nbytes(self) -> int: ...

    def reserve(self, new: int) -> None:
        """Room for `new` positions more, so that steps need not grow it."""

    def fork(self, room: int) -> KVCache:
        """A past of its own with the same content and `room` free positions."""


class LanguageModel(Protocol):
    """What `special_embedding`, `text`, `speech` and `prefill_embeddings` give may be joined along
    dimension 1 and is for this model's `step` only: a model that looks embeddings up itself gives
    row numbers, (1, n, 1), in their place.
    """

    dims: SpeechDims

    def special_embedding(self, which: int) -> Tensor:
        """The embedding of SOS or TASK, (1, 1, hidden)."""

    def text(self, ids: Sequence[int]) -> Tensor:
        """(1, n, hidden)"""

    def speech(self, ids: Sequence[int]) -> Tensor:
        """(1, n, hidden)"""

    def prefill_embeddings(self, text: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        """What follows a prefix: E(text) ++ [task] ++ E(prompt speech), (1, n, hidden)."""

    def new_cache(self, capacity: int) -> KVCache: ...

    def prefix(self, prompt_text: Sequence[int]) -> KVCache:
        """The past behind [sos] ++ prompt text: what all requests of a voice share. Fork it."""

    def step(self, x: Tensor, past: KVCache) -> Tensor:
        """Feed (1, n, hidden) behind `past`; log-probabilities after the last position, (1, rows)
        fp32.
        """

    def step_many(self, ids: Sequence[int], pasts: Sequence[KVCache]) -> Tensor:
        """One speech id to each of b requests whose pasts differ in length -> (b, rows) fp32.

        Rows do not influence each other.
        """


@dataclass(frozen=True)
class SamplingRequest:
    """What a request asks of a model that draws: the numbers of a Sampler with `seed`, at least and
    at most so many ids.
    """

    seed: int
    least: int
    most: int


@dataclass(frozen=True)
class DecodedTokens:
    """New ids of one request. `over`: it will draw no more."""

    ids: list[int]
    over: bool


@runtime_checkable
class DeviceSamplingModel(Protocol):
    """A LanguageModel that also draws, where it computes: ids come to the host, several steps at
    once, scores do not. positions: that one request may have.
    """

    positions: int

    def start(self, x: Tensor, past: KVCache, draw: SamplingRequest) -> None:
        """Feed an opening, and get ready to draw behind it."""

    def run(self, pasts: Sequence[KVCache], steps: int) -> list[DecodedTokens]:
        """`steps` ids, or fewer at the end, for each of the requests, all started."""
