"""The prompts that a replica holds: those used last, by engine, version and hash of their bytes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from cachetools import TTLCache

from ..types import Prompt

MAX_PROMPTS = 256  # some 100 kB each
UNUSED_S = 3600.0  # what a studio could not take back is gone after this


def key_of(prompt: Prompt) -> str:
    """The same on every machine: two studios with the same clip share it, and none can put another
    voice in its place.
    """
    digest = hashlib.sha256(prompt.data).hexdigest()
    return f"{prompt.engine}/{prompt.version}/{prompt.fingerprint}/{digest}"


class PromptCache:
    """Thread-safe. shared(key): where else a prompt may lie; it answers soon."""

    def __init__(
        self,
        max_prompts: int = MAX_PROMPTS,
        unused_s: float = UNUSED_S,
        shared: Callable[[str], Prompt | None] | None = None,
    ):
        self._shared = shared
        self._lock = threading.Lock()
        self._prompts: TTLCache[str, Prompt] = TTLCache(max_prompts, unused_s)

    def get(self, key: str) -> Prompt | None:
        with self._lock:
            prompt = self._prompts.get(key)
            if prompt is not None:
                self._prompts[key] = prompt  # its time begins anew
            return prompt

    def find_shared(self, key: str) -> Prompt | None:
        """From where prompts are shared; blocking for a moment. It is held here from then on."""
        prompt = self._shared(key) if self._shared is not None else None
        if prompt is not None:
            self.put(prompt)
        return prompt

    @property
    def is_shared(self) -> bool:
        return self._shared is not None

    def put(self, prompt: Prompt) -> str:
        """Returns its key."""
        key = key_of(prompt)
        with self._lock:
            self._prompts[key] = prompt
        return key

    def forget(self, fingerprint: str) -> None:
        with self._lock:
            for key in [k for k, p in self._prompts.items() if p.fingerprint == fingerprint]:
                del self._prompts[key]

    def __len__(self) -> int:
        with self._lock:
            return len(self._prompts)
