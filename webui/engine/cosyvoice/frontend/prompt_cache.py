"""What a voice costs once: its flow memory and its language-model prefixes, shared read-only by all
its requests. LRU by bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
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

    @property
    def bytes(self) -> int:
        return (self.flow.bytes if self.flow is not None else 0) + sum(
            p.nbytes for p in list(self._prefixes.values())
        )


class PromptCache:
    """Thread-safe.

    The least used voice makes room. A voice that is let go lives on in the requests that hold it.
    """

    def __init__(self, model: PromptModel, max_bytes: int, first_hop: int | None = None):
        self._model, self._max_bytes, self._first_hop = model, max_bytes, first_hop
        self._lock = threading.Lock()
        self._live: OrderedDict[str, CachedPrompt] = OrderedDict()
        self.n_made = 0

    def get(self, prompt: Prompt) -> CachedPrompt:
        """Quick. Raises EngineFault when the prompt's bytes are no voice."""
        with self._lock:
            if prompt.fingerprint not in self._live:
                self._live[prompt.fingerprint] = CachedPrompt(
                    self._model, self._model.unpack(prompt.data), self._first_hop
                )
                self.n_made += 1
            self._live.move_to_end(prompt.fingerprint)
            return self._live[prompt.fingerprint]

    def grow(self, voice: CachedPrompt) -> None:
        """For the audio worker: a piece of one voice, and others go when it takes more than there
        is.
        """
        voice.grow()
        with self._lock:
            while (
                len(self._live) > 1 and sum(v.bytes for v in self._live.values()) > self._max_bytes
            ):
                self._live.popitem(last=False)

    def forget(self, fingerprint: str) -> None:
        """It lives on in the requests that hold it, and nowhere else."""
        with self._lock:
            self._live.pop(fingerprint, None)

    def clear(self) -> None:
        with self._lock:
            self._live.clear()
