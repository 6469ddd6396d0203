"""Prompts of voices: made once per voice and engine, kept in memory (LRU by bytes) and beside the voice on disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ..audio import Clip
from ..engine.base import Engine
from ..errors import NotReady, StorageFull
from ..store import VoiceStore
from ..types import Prompt, Voice


class Prompts:
    def __init__(self, store: VoiceStore, max_bytes: int = 64 << 20):
        self._store, self._max_bytes = store, max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple, Prompt] = OrderedDict()
        self._coming: dict[tuple[tuple, Engine], Future] = {}  # by the engine itself: one that is closed fails what it owes, not what its successor makes
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="encode")
        self.n_encoded = 0
        self._is_closed = False

    def begin(self, voice: Voice, engine: Engine, clip: Callable[[], Clip], prepare: bool = False) -> Future:
        """The prompt, now or soon. `clip()` is asked for only when it has to be made; `prepare`: and the engine makes itself ready for it.
        The future raises the engine's named errors."""
        about = engine.describe()
        key = (voice.id, voice.fingerprint, about.name, about.version)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                ready: Future = Future()
                ready.set_result(self._kept[key])
                return ready
            if self._is_closed:
                raise NotReady("The studio is shutting down.", "工作室正在关闭。")
            if (key, engine) not in self._coming:
                self._coming[key, engine] = self._pool.submit(self._make, key, voice, engine, clip, prepare)
            return self._coming[key, engine]

    def _make(self, key: tuple, voice: Voice, engine: Engine, clip: Callable[[], Clip], prepare: bool) -> Prompt:
        try:
            prompt = None if voice.draft else self._store.load_prompt(voice, key[2], key[3])
            if prompt is None:
                sound = clip()
                prompt = engine.encode(sound.samples, sound.rate, voice.transcript, voice.language)
                self.n_encoded += 1
                if not voice.draft:
                    self._keep_on_disk(voice, prompt)
            self._keep(key, prompt)
            if prepare:
                engine.prepare(prompt)
            return prompt
        finally:
            with self._lock:
                self._coming.pop((key, engine), None)

    def _keep_on_disk(self, voice: Voice, prompt: Prompt) -> None:
        try:
            self._store.keep_prompt(voice, prompt)
        except StorageFull:
            pass  # a cache only: it is made again next time

    def _keep(self, key: tuple, prompt: Prompt) -> None:
        with self._lock:
            self._kept[key] = prompt
            while sum(len(p.data) for p in self._kept.values()) > self._max_bytes and len(self._kept) > 1:
                self._kept.popitem(last=False)

    def forget(self, voice_id: str) -> None:
        with self._lock:
            for key in [k for k in self._kept if k[0] == voice_id]:
                del self._kept[key]

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
