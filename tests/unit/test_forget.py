"""What is deleted is deleted: a voice's prompt leaves the studio's memory and the engine's with the
last that has its sound, and no sooner.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from tests.api.test_http import clip
from tests.engine.fake import RATE, FakeEngine
from tests.unit.test_studio import ME, finish, speak
from tests.voice_like import voice_like
from webui import audio
from webui.errors import NotFound
from webui.settings import Limits, Paths, Settings
from webui.studio import Studio
from webui.studio.drafts import wav
from webui.types import Abilities

LONG = "seconds=3 chunk=0.1"


class Listening(FakeEngine):
    """Encodes when it may; `words`: what it was told besides the sound is part of its prompts."""

    def __init__(self, words: bool = False):
        super().__init__()
        self.words, self.encoded = words, []
        self.may, self.began = threading.Event(), threading.Event()
        self.may.set()

    def describe(self) -> Abilities:
        return replace(super().describe(), hears_only=not self.words)

    def encode(self, samples, rate, transcript, language):
        self.began.set()
        assert self.may.wait(20)
        prompt = super().encode(samples, rate, transcript, language)
        self.encoded.append((len(samples), transcript))
        return (
            replace(prompt, fingerprint=f"{prompt.fingerprint}-{transcript}")
            if self.words
            else prompt
        )


def open_studio(tmp_path, engine, **limits) -> Studio:
    new_studio = Studio(
        Settings(
            paths=replace(Paths(), data_dir=tmp_path, assets=tmp_path),
            limits=replace(Limits(), **limits),
        )
    )
    new_studio.start(lambda: engine).join(20)
    return new_studio


@pytest.fixture
def engine():
    return Listening()


@pytest.fixture
def studio(tmp_path, engine):
    studio = open_studio(tmp_path, engine)
    yield studio
    engine.may.set()
    studio.close()


def until(condition) -> None:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def add(studio, seed=0):
    return studio.voices.add(ME, clip(5, seed=seed), "Lin", consent="me")[0]


def test_a_deleted_voice_leaves_the_engine_and_the_studio(studio, engine):
    first, other = add(studio), add(studio, seed=1)
    until(lambda: len(engine.prompts) == 2)
    assert (
        speak(studio, voice_id=first.id)[1].state
        == speak(studio, voice_id=other.id)[1].state
        == "done"
    )
    before = (
        sum(map(len, engine.prompts.values())),
        sum(len(p.data) for p in studio.prompts._prompts.values()),
    )
    studio.voices.delete(ME, first.id)
    after = (
        sum(map(len, engine.prompts.values())),
        sum(len(p.data) for p in studio.prompts._prompts.values()),
    )
    assert (before, after) == ((8, 8), (4, 4)) and len(set(engine.forgotten)) == 1
    with pytest.raises(NotFound):
        speak(studio, voice_id=first.id)
    assert speak(studio, voice_id=other.id)[1].state == "done" and len(engine.prompts) == 1


def test_two_of_the_same_sound_are_one_to_the_engine_until_both_are_gone(studio, engine):
    first, same = add(studio), add(studio)
    until(lambda: len(engine.prompts) == 1)
    studio.voices.delete(ME, first.id)
    assert len(engine.prompts) == len(studio.prompts._prompts) == 1 and not engine.forgotten
    studio.voices.delete(ME, same.id)
    assert not engine.prompts and not studio.prompts._prompts


def test_whoever_speaks_with_it_is_heard_to_the_end_and_it_goes_then(studio, engine):
    voice = add(studio)
    expected, _ = speak(studio, instruction=LONG, voice_id=voice.id, seed=3)
    job = studio.synthesis.open(
        ME, text_in="Hello there.", voice_id=voice.id, mode="instruct", instruction=LONG, seed=3
    )
    studio.job_runner.credit(job, RATE)
    until(lambda: job.produced >= RATE)
    studio.voices.delete(ME, voice.id)
    assert len(engine.prompts) == 1 and not engine.forgotten, "it is in use"
    assert finish(studio, job).state == "done" and job.pcm(0, job.produced) == expected.pcm(
        0, expected.produced
    )
    until(lambda: not engine.prompts)


def test_one_that_still_waits_in_the_line_brings_nothing_back(tmp_path, engine):
    studio = open_studio(tmp_path, engine, max_streams=1)
    voice = add(studio)
    first = studio.synthesis.open(
        ME, text_in="Hello.", voice_id=voice.id, mode="instruct", instruction="seconds=60"
    )
    studio.job_runner.credit(first, RATE * 3600)
    waiting = [
        studio.synthesis.open(
            ME, text_in="Hello.", voice_id=voice.id, mode="instruct", instruction="seconds=1"
        )
        for _ in range(2)
    ]
    studio.voices.delete(ME, voice.id)
    for job in (first, waiting[0]):
        studio.job_runner.cancel(job)
    assert finish(studio, waiting[1]).state == "done"
    until(lambda: not engine.prompts)
    studio.close()


def test_a_voice_deleted_while_it_is_listened_to_leaves_nothing(studio, engine, tmp_path):
    engine.may.clear()
    voice = add(studio)
    assert engine.began.wait(20)
    studio.voices.delete(ME, voice.id)
    engine.may.set()
    until(lambda: engine.encoded and not studio.prompts._pending)
    assert (
        not engine.prompts
        and not studio.prompts._prompts
        and not [p for p in tmp_path.rglob("*") if voice.id in str(p)]
    )


def test_who_waits_for_the_prompt_of_a_voice_that_is_deleted_meanwhile_is_told_so(studio, engine):
    engine.may.clear()
    voice, codes = add(studio), []

    def ask():
        with pytest.raises(NotFound) as exc_info:
            studio.synthesis.open(ME, text_in="Hello.", voice_id=voice.id)
        codes.append(exc_info.value.code)

    thread = threading.Thread(target=ask)
    thread.start()
    until(
        lambda: (
            any(users for users in studio.prompts._users.values())
            and studio.engine_manager._seat.leases >= 2
        )
    )
    studio.voices.delete(ME, voice.id)
    engine.may.set()
    thread.join(20)
    until(lambda: not studio.prompts._pending)
    assert (
        codes == ["voice_gone"]
        and not engine.prompts
        and not studio.prompts._users
        and studio.engine_manager._seat.leases == 0
    )


def test_a_clip_that_is_pushed_out_goes_with_all_that_was_made_of_it(tmp_path, engine):
    studio = open_studio(tmp_path, engine, max_draft_mb=1)
    first = studio.drafts.make(ME, clip(5))
    cleaned = studio.drafts.change(ME, first.id, clean=0.6)
    until(lambda: len(engine.prompts) == 2 and len(studio.drafts._cleaned) == 1)
    for seed in (1, 2, 3):
        last = studio.drafts.make(ME, clip(5, seed=seed))
    until(lambda: not studio.prompts._pending)
    for draft in (first, cleaned):
        with pytest.raises(NotFound):
            studio.drafts.get(ME, draft.id)
    assert len(engine.prompts) == len(studio.drafts._drafts) and last.id in studio.drafts._drafts
    assert not any(clip is first.clip for clip, _ in studio.drafts._cleaned.values())
    studio.close()


def test_the_clip_a_voice_was_saved_from_goes_with_it(studio, engine):
    draft, other_draft = studio.drafts.make(ME, clip(5)), studio.drafts.make(ME, clip(5, seed=1))
    foreign_draft = studio.drafts.make("user-ann/x", clip(5))
    voice = studio.drafts.save(ME, draft.id, "Lin", "", "me")
    until(lambda: len(engine.prompts) == 2)
    studio.voices.delete(ME, voice.id)
    with pytest.raises(NotFound):
        studio.drafts.get(ME, draft.id)
    assert (
        studio.drafts.get(ME, other_draft.id) is other_draft
        and studio.drafts.get("user-ann/x", foreign_draft.id) is foreign_draft
    )
    assert len(engine.prompts) == 2, "another visitor holds the same sound"
    studio.drafts.drop(foreign_draft.id)
    assert len(engine.prompts) == 1


# ---- made once -----------------------------------------------------------------------------------
def test_the_prompt_of_a_clip_serves_the_voice_that_is_saved_from_it(studio, engine, tmp_path):
    draft = studio.drafts.make(ME, wav(voice_like(6.0)))
    until(lambda: len(engine.encoded) == 1)
    voice = studio.drafts.save(ME, draft.id, "Lin", "Hello there, world.", "me")
    assert (
        speak(studio, voice_id=voice.id)[1].state == "done"
        and studio.prompts.n_encoded == len(engine.encoded) == 1
    )
    until(lambda: list(tmp_path.rglob("*.prompt")))
    [prompt] = studio.prompts._prompts.values()
    studio.close()
    second_studio = open_studio(tmp_path, after := Listening())
    snapshot = speak(second_studio, voice_id=voice.id)[1]
    assert (
        snapshot.state == "done"
        and not after.encoded
        and list(second_studio.prompts._prompts.values()) == [prompt]
    ), "by the same name, after a restart"
    second_studio.close()


def test_a_voice_saved_while_its_clip_is_listened_to_waits_for_that(studio, engine, tmp_path):
    engine.may.clear()
    draft = studio.drafts.make(ME, clip(5))
    voice = studio.drafts.save(ME, draft.id, "Lin", "", "me")
    studio.drafts.drop(draft.id)
    engine.may.set()
    assert speak(studio, voice_id=voice.id)[1].state == "done" and len(engine.encoded) == 1
    until(lambda: list(tmp_path.rglob("*.prompt")))


def test_an_engine_that_reads_the_transcript_is_told_it(tmp_path):
    studio = open_studio(tmp_path, engine := Listening(words=True))
    draft = studio.drafts.make(ME, clip(5))
    plain = studio.drafts.save(ME, draft.id, "Lin", "", "me")
    voice_with_text = studio.drafts.save(ME, draft.id, "Lin", "Hello there.", "me")
    for voice in (plain, voice_with_text, plain):
        speak(studio, voice_id=voice.id)
    assert [words for _, words in engine.encoded] == ["", "Hello there."]
    changed = studio.voices.change(ME, voice_with_text.id, transcript="Something else.")
    speak(studio, voice_id=changed.id)
    assert [words for _, words in engine.encoded] == ["", "Hello there.", "Something else."], (
        "its prompt was of other words"
    )
    studio.close()


def test_what_a_clip_is_heard_as_is_what_is_kept_of_it(studio):
    draft = studio.drafts.change(
        ME,
        studio.drafts.make(ME, wav(voice_like(6.0, rate=44100))).id,
        window=(0.5, 5.0),
        gain=True,
    )
    voice = studio.drafts.save(ME, draft.id, "Lin", "", "me")
    reference, sample = (
        studio.drafts.reference(draft),
        audio.decode(studio.voices.sample(ME, voice.id)),
    )
    assert reference.rate == sample.rate and np.array_equal(reference.samples, sample.samples)
