"""What a voice costs once: its flow memory and its language-model prefixes, shared read-only by all its requests. LRU by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

import torch

from ...types import Prompt
from .flow import VoiceState
from .kv_cache import KvCache
from .model import CosyVoice2
from .prompt import VoicePrompt

MAX_PREFIXES = 8


class LiveVoice:
    def __init__(self, model: CosyVoice2, prompt: VoicePrompt):
        self._model, self.prompt = model, prompt
        self.flow = VoiceState.of(model.flow, torch.tensor(prompt.speech_ids, dtype=torch.long), prompt.mel, prompt.vector, store=model.place.store)
        self._prefixes: OrderedDict[tuple[int, ...], KvCache] = OrderedDict()

    def prefix(self, prompt_text: tuple[int, ...]) -> KvCache:
        """The language model behind [start] ++ prompt text. Fork it."""
        if prompt_text not in self._prefixes:
            self._prefixes[prompt_text] = self._model.lm.prefix(prompt_text)
            while len(self._prefixes) > MAX_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(prompt_text)
        return self._prefixes[prompt_text]

    @property
    def bytes(self) -> int:
        return self.flow.bytes + sum(p.nbytes for p in self._prefixes.values())


class LiveVoices:
    """Used from the engine's lane only; the lock guards the counts others read."""

    def __init__(self, model: CosyVoice2, max_bytes: int):
        self._model, self._max_bytes = model, max_bytes
        self._lock = threading.Lock()
        self._live: OrderedDict[str, LiveVoice] = OrderedDict()
        self.made = 0

    def get(self, prompt: Prompt) -> LiveVoice:
        """Raises EngineFault when the prompt's bytes are no voice."""
        with self._lock:
            if prompt.fingerprint in self._live:
                self._live.move_to_end(prompt.fingerprint)
                return self._live[prompt.fingerprint]
        voice = LiveVoice(self._model, VoicePrompt.unpack(prompt.data))
        with self._lock:
            self.made += 1
            self._live[prompt.fingerprint] = voice
            while len(self._live) > 1 and sum(v.bytes for v in self._live.values()) > self._max_bytes:
                self._live.popitem(last=False)
        return voice

    def clear(self) -> None:
        with self._lock:
            self._live.clear()
