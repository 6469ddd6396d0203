"""What a request needs of a language model, whoever computes it: torch, ONNX Runtime or captured graphs. Blind to text and to sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from .dims import LmDims


class Past(Protocol):
    """What one request remembers of the model. Not shared, except a prefix, which is only forked."""

    length: int

    @property
    def nbytes(self) -> int: ...

    def reserve(self, new: int) -> None:
        """Room for `new` positions more, so that steps need not grow it."""

    def fork(self, room: int) -> Past:
        """A past of its own with the same content and `room` free positions."""


class LanguageModel(Protocol):
    dims: LmDims

    def mark(self, which: int) -> Tensor:
        """The embedding of SOS or TASK, (1, 1, hidden)."""

    def text(self, ids: Sequence[int]) -> Tensor:
        """(1, n, hidden)"""

    def speech(self, ids: Sequence[int]) -> Tensor:
        """(1, n, hidden)"""

    def opening(self, text: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        """What follows a prefix: E(text) ++ [task] ++ E(prompt speech), (1, n, hidden)."""

    def new_cache(self, capacity: int) -> Past: ...

    def prefix(self, prompt_text: Sequence[int]) -> Past:
        """The past behind [sos] ++ prompt text: what all requests of a voice share. Fork it."""

    def step(self, x: Tensor, past: Past) -> Tensor:
        """Feed (1, n, hidden) behind `past`; log-probabilities after the last position, (1, S + 3) fp32."""

    def step_many(self, ids: Sequence[int], pasts: Sequence[Past]) -> Tensor:
        """One speech id to each of b requests whose pasts differ in length -> (b, S + 3) fp32. Rows do not influence each other."""
