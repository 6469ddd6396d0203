"""Prompts of voices: made once per sound and engine, kept in memory (LRU by bytes) and beside the
voice on disk, until nobody has that sound.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, Protocol

from ..audio import Clip
from ..engine.base import Engine
from ..engine.manager import Lease
from ..errors import NotFound, NotReady, StorageFull
from ..store import VoiceStore
from ..store.voices import voice_gone
from ..types import Abilities, Prompt, Voice
from .prompt_refs import PromptLease, PromptRefs


class PromptKey(NamedTuple):
    """What a prompt is made from: what has the same need not be made again, whoever has it."""

    engine: str
    version: str
    sound: str
    words: str  # of transcript and language; "" where they are no part of it


def prompt_key(about: Abilities, voice: Voice) -> PromptKey:
    fields = (voice.transcript, voice.language)
    words = (
        hashlib.sha256(repr(fields).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        if any(fields) and not about.hears_only
        else ""
    )
    return PromptKey(about.name, about.prompt_version, voice.fingerprint, words)


class SharedPrompts(Protocol):
    """Prompts of other studios too. Whatever befalls it, it answers soon and never raises."""

    def find(self, made_from: PromptKey) -> Prompt | None: ...

    def put(self, made_from: PromptKey, prompt: Prompt) -> None:
        """Returns at once."""

    def forget(self, sound: str) -> None:
        """Of all that is made from it."""

    def figures(self) -> dict[str, int]: ...

    def close(self) -> None: ...


class PromptCache:
    """shared: where prompts of saved voices lie too; those of drafts never leave this process."""

    def __init__(
        self, store: VoiceStore, max_bytes: int = 64 << 20, shared: SharedPrompts | None = None
    ):
        self._store, self._max_bytes, self.shared = store, max_bytes, shared
        self._lock, self._refs = threading.Lock(), PromptRefs()
        self._prompts: OrderedDict[PromptKey, Prompt] = OrderedDict()
        self._users: dict[
            PromptKey, dict[str, tuple[Voice, Callable[[], Clip]]]
        ] = {}  # voices and drafts that asked for it and are not gone, each with its sound
        self._pending: dict[
            tuple[PromptKey, Engine], Future
            # by the engine itself: one that is closed fails what it owes, not what its successor
            # makes
        ] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="encode")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="keep-prompts")
        self.n_encoded = 0
        self._is_closed = False

    def begin(
        self, voice: Voice, engine: Engine, clip: Callable[[], Clip], prepare: bool = False
    ) -> Future:
        """The prompt, now or soon.

        `clip()` is asked for only when it has to be made; `prepare`: and the engine makes itself
        ready for it. The future raises the engine's named errors.
        """
        key = prompt_key(engine.describe(), voice)
        with self._lock:
            prompt = self._prompts.get(key)
            if prompt is None and self._is_closed:
                raise NotReady("notready.shutting_down")
            users = self._users.setdefault(key, {})
            is_new = voice.id not in users
            users[voice.id] = voice, clip
            if prompt is None:
                if (key, engine) not in self._pending:
                    self._pending[key, engine] = self._pool.submit(
                        self._make, key, voice, engine, prepare
                    )
                return self._pending[key, engine]
            self._prompts.move_to_end(key)
            self._refs.add(engine, prompt.fingerprint, voice.id)
            self._share(key, prompt, (voice,))
            if is_new and not voice.draft:
                self._write(voice, key, prompt)
        ready: Future = Future()
        ready.set_result(prompt)
        return ready

    def hold(self, lease: Lease, prompt: Prompt) -> PromptLease:
        """For work that is to speak with it: until that ends the engine forgets nothing of it,
        though the voice itself be deleted.
        """
        return PromptLease(self._refs, lease, prompt.fingerprint)

    def preset(self, engine: Engine, name: str) -> Prompt:
        """A voice that an engine brings: it is never gone."""
        prompt = engine.preset(name)
        self._refs.add(engine, prompt.fingerprint, name)
        return prompt

    def _make(self, key: PromptKey, voice: Voice, engine: Engine, prepare: bool) -> Prompt:
        work = object()
        prompt = None
        try:
            prompt = (
                None
                if voice.draft
                else self._store.load_prompt(voice, key.engine, key.version, key.words)
            )
            is_old = prompt is not None
            if prompt is None and self.shared is not None:
                prompt = self.shared.find(key)
            if prompt is None:
                sound = self._sound(key)
                prompt = engine.encode(sound.samples, sound.rate, voice.transcript, voice.language)
                self.n_encoded += 1
            self._refs.add(engine, prompt.fingerprint, work)
            users = self._keep(key, engine, prompt)
            self._share(key, prompt, users)
            with self._lock:
                for user in users:
                    if not user.draft and not (is_old and user.id == voice.id):
                        self._write(user, key, prompt)
            if prepare and users:
                engine.prepare(prompt)
            return prompt
        finally:
            if prompt is not None:
                self._refs.drop(work, engine, prompt.fingerprint)
            with self._lock:
                self._pending.pop((key, engine), None)

    def _sound(self, key: PromptKey) -> Clip:
        """Of somebody who has it still: a clip that was pushed out while it waited here takes no
        memory and no work. Raises NotFound.
        """
        with self._lock:
            clips = [clip for _, clip in self._users.get(key, {}).values()]
        for clip in clips:
            with suppress(NotFound):
                return clip()
        raise voice_gone()

    def _write(self, voice: Voice, key: PromptKey, prompt: Prompt) -> None:
        """Called with the lock held.

        Whoever waits to speak does not wait for the disk; `close` does.
        """
        if not self._is_closed:
            self._writer.submit(self._keep_on_disk, voice, key, prompt)

    def _keep_on_disk(self, voice: Voice, key: PromptKey, prompt: Prompt) -> None:
        with suppress(
            StorageFull, NotFound
        ):  # a cache only: it is made again next time; and the voice may have been deleted
            self._store.keep_prompt(voice, prompt, key.words)

    def _keep(self, key: PromptKey, engine: Engine, prompt: Prompt) -> list[Voice]:
        """Those who have that sound still; where there are none, nothing is kept."""
        with self._lock:
            users = [voice for voice, _ in self._users.get(key, {}).values()]
            if users:
                self._prompts[key] = prompt
            for user in users:
                self._refs.add(engine, prompt.fingerprint, user.id)
            while (
                sum(len(p.data) for p in self._prompts.values()) > self._max_bytes
                and len(self._prompts) > 1
            ):
                self._prompts.popitem(last=False)
        return users

    def _share(self, key: PromptKey, prompt: Prompt, users: Iterable[Voice]) -> None:
        if self.shared is not None and any(not user.draft for user in users):
            self.shared.put(key, prompt)

    def forget(self, voice_id: str, sound: str = "") -> None:
        """A voice or draft is gone.

        Where no other has its sound the prompt goes, here and in the engine's own memory. sound:
        of a saved voice: where prompts are shared they go first, whoever else has that sound.
        """
        if self.shared is not None and sound:
            self.shared.forget(sound)
        with self._lock:
            for key in [m for m, users in self._users.items() if voice_id in users]:
                del self._users[key][voice_id]
                if not self._users[key]:
                    del self._users[key]
                    self._prompts.pop(key, None)
        self._refs.drop_all(voice_id)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown()  # what was made is not made again after a restart
        if self.shared is not None:
            self.shared.close()
