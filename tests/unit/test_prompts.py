"""What a voice's prompt waits for, and whom its failure concerns."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.fake import RATE, FakeEngine
from webui.audio import Clip
from webui.errors import NotReady
from webui.messages import Message
from webui.store import VoiceStore
from webui.studio.prompt_cache import PromptCache
from webui.types import Voice

VOICE = Voice("voice-1", "V", "en", "", "fp", 4.0, 1.0, owner="local", draft=True)


class Slow(FakeEngine):
    """Encodes when it may."""

    def __init__(self):
        super().__init__()
        self.encode_started, self.go_on = threading.Event(), threading.Event()

    def encode(self, *args):
        self.encode_started.set()
        assert self.go_on.wait(20)
        return super().encode(*args)


class Closing(Slow):
    """Closed while it encodes."""

    def encode(self, *args):
        super().encode(*args)
        raise NotReady(Message("The studio is closing.", "工作室正在关闭。"))


def test_an_engine_that_is_closed_does_not_fail_its_successor_of_the_same_name(tmp_path):
    prompts, old, new = PromptCache(VoiceStore(tmp_path, tmp_path)), Closing(), Slow()
    clip = lambda: Clip(np.full(RATE * 2, 0.1, np.float32), RATE)  # noqa: E731
    owed = prompts.begin(VOICE, old, clip)
    assert old.encode_started.wait(20)
    future = prompts.begin(VOICE, new, clip)
    assert prompts.begin(VOICE, old, clip) is owed, (
        "who asks the same engine twice waits for the same"
    )
    new.go_on.set()
    assert future.result(20).engine == "fake"
    old.go_on.set()
    with pytest.raises(NotReady):
        owed.result(20)
    prompts.close()


class Named(FakeEngine):
    """One of several engines between which the studio switches."""

    def __init__(self, name: str, version: str = "1"):
        super().__init__(version=version)
        self.name, self.n_heard = name, 0

    def describe(self):
        return replace(super().describe(), name=self.name)

    def encode(self, *args):
        self.n_heard += 1
        return replace(super().encode(*args), engine=self.name)


def test_a_voice_is_made_again_from_its_clip_for_another_engine_and_not_when_it_comes_back(
    tmp_path,
):
    store, clip, calls = (
        VoiceStore(tmp_path, tmp_path),
        Clip(np.full(RATE * 2, 0.1, np.float32), RATE),
        [],
    )

    def load_clip() -> Clip:
        calls.append(1)
        return clip

    voice = replace(VOICE, draft=False)
    store.add(voice, b"RIFF")
    old, new, newer = Named("cosyvoice2"), Named("cosyvoice3"), Named("cosyvoice3", "2")
    prompts = PromptCache(store)
    for engine, n_encoded in ((old, 1), (new, 2), (old, 2), (new, 2), (newer, 3)):
        prompt = prompts.begin(voice, engine, load_clip).result(20)
        assert (prompt.engine, prompt.version, len(calls)) == (
            engine.name,
            engine.version,
            n_encoded,
        )
    prompts.close()
    second_cache = PromptCache(store)
    for engine in (new, old, newer):
        assert second_cache.begin(voice, engine, load_clip).result(20).engine == engine.name
    assert len(calls) == 3 and (old.n_heard, new.n_heard, newer.n_heard) == (1, 1, 1), (
        "after a restart each is still there"
    )
    second_cache.close()


class Store(VoiceStore):
    def __init__(self, root):
        super().__init__(root, root)
        self.wrote = []

    def keep_prompt(self, voice, prompt, words=""):
        self.wrote.append(voice.id)


def test_what_was_made_is_on_disk_when_the_studio_has_closed(tmp_path):
    """Saved from a clip that had been encoded, while both encoders are busy with others."""
    store, fast, slow = Store(tmp_path), FakeEngine(), Closing()
    prompts = PromptCache(store)
    clip = lambda: Clip(np.full(RATE * 2, 0.1, np.float32), RATE)  # noqa: E731
    prompts.begin(VOICE, fast, clip).result(20)
    for n in ("a", "b"):
        prompts.begin(replace(VOICE, id=n, fingerprint=n), slow, clip)
    prompts.begin(replace(VOICE, id="saved", draft=False), fast, clip).result(20)
    prompts.close()
    slow.go_on.set()
    assert store.wrote == ["saved"]
