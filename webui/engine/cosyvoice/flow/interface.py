"""What the scheduler and the prompt cache see of the flow."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from torch import Tensor


class FlowRequest(Protocol):
    """What one request remembers of the flow. computed_frames, emitted_frames: count its work."""

    computed_frames: int
    emitted_frames: int

    def shape(self, n_ids: int, final: bool = False) -> Hashable:
        """Equal for steps that can share their calls; None: it goes alone."""

    def step(self, ids: Sequence[int], final: bool = False) -> Tensor:
        """All ids so far -> mel (m, 80) of the frames that became final and were not given
        before.
        """

    @property
    def bytes(self) -> int: ...

    def close(self) -> None: ...


class FlowVoice(Protocol):
    """What a voice costs the flow once, shared read-only by its requests."""

    is_ready: bool

    def grow(self) -> None:
        """Its next piece, so that other work can go between."""

    @property
    def bytes(self) -> int: ...

    def shape(self, n_ids: int, final: bool = False) -> Hashable:
        """That of a new request's first step."""

    def begin(self, *, seed: int) -> FlowRequest:
        """seed: of the request, where its noise is not the model's."""
