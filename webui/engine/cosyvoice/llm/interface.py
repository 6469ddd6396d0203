"""What a request needs of a language model, whichever it is and whoever computes it: torch, ONNX
Runtime or captured graphs. Blind to text and to sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from .sampler import RasRule


class SpeechDims(Protocol):
    """LmDims, or another network's own.

    Speech ids are 0..speech_codes-1; the rows behind them are marks, of which any ends a text.
    """

    speech_codes: int

    @property
    def rows(self) -> int: ...

    @property
    def end(self) -> int: ...

    def forbidden_ids(self, *allowed_ids: int) -> tuple[int, ...]:
        """The marks but `allowed_ids`."""

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


@dataclass(frozen=True)
class SamplingRequest:
    """What a request asks of the draws: a random stream of its own, at least and at most so many
    ids. rule: a recorded model keeps the one that it was recorded with.
    """

    seed: int
    least: int
    most: int
    rule: RasRule = field(default_factory=RasRule)


@dataclass(frozen=True)
class DecodedTokens:
    """New ids of one request. `over`: it will draw no more. error: why this one alone failed."""

    ids: list[int]
    over: bool
    error: Exception | None = None


class LanguageModel(Protocol):
    """What `special_embedding`, `text`, `speech` and `prefill_embeddings` give may be joined along
    dimension 1 and is for this model's `step` only: a model that looks embeddings up itself gives
    row numbers, (1, n, 1), in their place.
    """

    dims: SpeechDims
    max_steps: int  # of one `decode`: others wait so long to join
    positions: int | None  # that one request may have; None: as memory allows

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

    def start(self, x: Tensor, past: KVCache, sampling: SamplingRequest) -> DecodedTokens:
        """Feed an opening, (1, n, hidden), and get ready to draw behind it: the first ids, if any
        are there at once.
        """

    def decode(self, pasts: Sequence[KVCache], steps: int = 1) -> list[DecodedTokens]:
        """`steps` ids, or fewer at the end, for each of different requests, all started, as each
        would draw them alone. When it raises no id has been drawn.
        """
