"""What a voice costs once: its flow memory and its language-model prefixes, shared read-only by all
its requests. LRU by bytes, in two places.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Any, Protocol

from ....types import Prompt
from ..flow.interface import FlowVoice
from ..llm.interface import KVCache, LanguageModel
from ..model_spec import ModelSizes, ModelSpec
from .prompt_encoder import PromptFeatures

MAX_PREFIXES = 8


class PromptModel(Protocol):
    """What prompts need of a loaded model (model.Model has more)."""

    model_spec: ModelSpec
    spec: ModelSizes
    tokenizer: Any  # encode, typed, arriving, unknown
    lm: LanguageModel

    def unpack(self, data: bytes) -> PromptFeatures: ...

    def voice(self, prompt: PromptFeatures, first_hop: int) -> FlowVoice: ...


class CachedPrompt:
    """Made at once, and computed when it is first wanted: the flow's part by the audio worker
    (`grow`), prefixes by the LM worker.
    """

    def __init__(self, model: PromptModel, prompt: PromptFeatures, first_hop: int | None = None):
        """first_hop: ids of a request's first hop, as the model was trained when None."""
        self._model, self.prompt = model, prompt
        self._first_hop = first_hop or model.model_spec.first_hops[0]
        self.flow: FlowVoice | None = None
        self._prefixes: OrderedDict[Hashable, KVCache] = OrderedDict()

    def grow(self) -> None:
        """The next piece of the prompt."""
        if self.flow is None:
            self.flow = self._model.voice(self.prompt, self._first_hop)
        if not self.flow.is_ready:
            self.flow.grow()

    @property
    def is_ready(self) -> bool:
        return self.flow is not None and self.flow.is_ready

    def prefix(self, prompt_text: tuple[int, ...]) -> KVCache:
        """The language model behind [start] ++ prompt text. Fork it."""
        return self.past(prompt_text, lambda: self._model.lm.prefix(prompt_text))

    def past(self, key: Hashable, make: Callable[[], KVCache]) -> KVCache:
        """What the requests of this voice share under `key`, made when there is none. Fork it."""
        if key not in self._prefixes:
            self._prefixes[key] = make()
            while len(self._prefixes) > MAX_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(key)
        return self._prefixes[key]

    # ---- a device with memory of its own: for the audio worker -----------------------------------
    @property
    def is_out(self) -> bool:
        return bool(self.host_bytes)

    @property
    def can_move_out(self) -> bool:
        return self.is_ready and bool(self.flow.bytes)

    def move_out(self) -> None:
        """To the host's memory; `grow` brings it back."""
        self.flow.move_out()

    @property
    def host_bytes(self) -> int:
        return self.flow.host_bytes if self.flow is not None else 0

    @property
    def out_bytes(self) -> int:
        return self.flow.out_bytes if self.flow is not None else 0

    @property
    def bytes(self) -> int:
        return (self.flow.bytes if self.flow is not None else 0) + sum(
            p.nbytes for p in list(self._prefixes.values())
        )


class PromptCache:
    """Thread-safe.

    The least used voice makes room: it waits in the host's memory, where that is another than the
    device's, and is gone when that is full too. A voice that is let go lives on in the requests
    that hold it; one that a request uses is never moved.
    """

    def __init__(
        self, model: PromptModel, max_bytes: int, host_bytes: int = 0, first_hop: int | None = None
    ):
        self._model, self._max_bytes, self._host_bytes, self._first_hop = (
            model,
            max_bytes,
            host_bytes,
            first_hop,
        )
        self._lock = threading.Lock()
        self._live: OrderedDict[str, CachedPrompt] = OrderedDict()
        self._is_over = False
        self.made = self.moved_out = self.moved_in = 0

    def get(self, prompt: Prompt) -> CachedPrompt:
        """Quick. Raises EngineFault when the prompt's bytes are no voice."""
        with self._lock:
            if prompt.fingerprint not in self._live:
                self._live[prompt.fingerprint] = CachedPrompt(
                    self._model, self._model.unpack(prompt.data), self._first_hop
                )
                self.made += 1
            self._live.move_to_end(prompt.fingerprint)
            return self._live[prompt.fingerprint]

    def grow(self, voice: CachedPrompt, used: Collection[CachedPrompt] = ()) -> None:
        """For the audio worker: a piece of one voice, and others go when it takes more than there
        is. used: of requests under way.
        """
        keep = {voice, *used}
        if voice.is_out:
            self._make_room(keep, voice.out_bytes)
            self.moved_in += 1
        voice.grow()
        self._make_room(keep)

    def settle(self, used: Callable[[], Collection[CachedPrompt]]) -> None:
        """Again, when voices that could not go may have been let go of since.

        For the audio worker.
        """
        if self._is_over:
            self._make_room(used())

    def _make_room(self, keep: Collection[CachedPrompt], more: int = 0) -> None:
        with self._lock:
            self._is_over = False
            while (
                len(self._live) > 1
                and more + sum(v.bytes for v in self._live.values()) > self._max_bytes
            ):
                if not self._host_bytes:
                    self._live.popitem(last=False)
                elif (
                    least := next(
                        (v for v in self._live.values() if v not in keep and v.can_move_out), None
                    )
                ) is not None:
                    least.move_out()
                    self.moved_out += 1
                else:
                    self._is_over = True
                    break
            waiting = (
                [] if more else [key for key, v in self._live.items() if v.is_out and v not in keep]
            )  # who comes back leaves room first
            while waiting and sum(v.host_bytes for v in self._live.values()) > self._host_bytes:
                del self._live[waiting.pop(0)]

    def forget(self, fingerprint: str) -> None:
        """It lives on in the requests that hold it, and nowhere else."""
        with self._lock:
            self._live.pop(fingerprint, None)

    def clear(self) -> None:
        with self._lock:
            self._live.clear()
