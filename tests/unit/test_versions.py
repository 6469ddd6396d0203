"""The version of what is heard and the version of prompts, in the studio: sound is made anew for
other samples, prompts are not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.engine.fake import RATE, FakeEngine
from tests.unit import batch_desk
from tests.unit.batch_desk import ME, asks, until
from webui.audio import Clip
from webui.store import VoiceStore
from webui.studio.prompt_cache import PromptCache
from webui.studio.text_source import TextSource, TextSourceStream
from webui.types import SpeechRequest, Voice

engine, studio = batch_desk.engine, batch_desk.studio


class Placed(FakeEngine):
    """One model in several precisions: its prompts are the same in all of them."""

    def __init__(self, version: str):
        super().__init__(version=version)
        self.n_encoded = 0

    def describe(self):
        return replace(super().describe(), prompt_version="p")

    def encode(self, *args):
        self.n_encoded += 1
        return replace(super().encode(*args), version="p")


def test_a_prompt_is_not_made_again_for_another_precision(tmp_path):
    store, calls = VoiceStore(tmp_path, tmp_path), []

    def clip() -> Clip:
        calls.append(1)
        return Clip(np.full(RATE * 2, 0.1, np.float32), RATE)

    voice = Voice("voice-1", "V", "en", "", "fp", 4.0, 1.0, owner="local")
    store.add(voice, b"RIFF")
    engines = [Placed("3+fp32.cpu"), Placed("3+int8-fp32.cpu"), Placed("3+bf16.cuda")]
    for prompt_engine in engines:
        prompts = PromptCache(store)
        assert prompts.begin(voice, prompt_engine, clip).result(20).version == "p"
        prompts.close()
    assert len(calls) == 1 and [e.n_encoded for e in engines] == [1, 0, 0]


def test_a_batch_makes_its_sound_anew_at_another_precision_and_not_at_the_same(studio):
    def through(version: str) -> int:
        """How many lines were made, and not found."""
        before = studio.batch.worker.synthesiser.n_made
        studio.engine_manager.start(lambda: Placed(version)).join(20)
        job = studio.batch.submit(ME, asks(3), seed=5)
        assert until(studio, job, "done").lines == {"done": 3}
        return studio.batch.worker.synthesiser.n_made - before

    versions = ("3+fp32.cpu", "3+int8-fp32.cpu", "3+fp32.cuda", "3+fp32.cpu")
    assert [through(version) for version in versions] == [3, 3, 3, 0]


def seeds_of(seed: int) -> list[int]:
    """Those with which the runs of an arriving text are spoken."""
    source, seeds = TextSource(lambda clause, language: [clause], "en", []), []

    class Heard(FakeEngine):
        def stream(self, request, prompt, lane=0):
            seeds.append(request.seed)
            return super().stream(request, prompt, lane)

    fake_engine = Heard()
    prompt = fake_engine.encode(np.full(RATE * 2, 0.1, np.float32), RATE, "", "en")
    source.push("One of them. Two of them. Three of them. ")
    source.end()
    chunks = TextSourceStream(
        fake_engine, SpeechRequest("r", "x", "v", seed=seed), prompt, source, 0
    )
    while not next(chunks).last:
        pass
    return seeds


def test_no_run_of_an_arriving_text_has_the_seed_of_a_run_of_the_next_seed():
    seeds = [*seeds_of(7), *seeds_of(8), *seeds_of(9)]
    assert len(seeds) > 6 and len(set(seeds)) == len(seeds)
    assert seeds_of(7) == seeds[: len(seeds) // 3]
