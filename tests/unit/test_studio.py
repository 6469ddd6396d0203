"""The studio without a screen: hot swap under a running stream, tags, tempo, takes with undo,
drafts, prompts made once.
"""

from __future__ import annotations

import asyncio
import threading
import time
import wave
from dataclasses import replace

import numpy as np
import pytest

from tests.api.test_http import clip
from tests.engine.fake import RATE, FakeEngine
from webui import audio
from webui.errors import NotAllowed, NotFound
from webui.settings import Paths, Settings
from webui.studio import UNLIMITED, Studio
from webui.studio.request_builder import SHORT_ARRIVED, SHORT_TEXT
from webui.types import Segmentation

ME, OTHER = "local/me", "local/other"


@pytest.fixture
def studio(tmp_path):
    studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path)))
    studio.start(FakeEngine).join(20)
    end = time.monotonic() + 20
    while studio.prompts.n_encoded < len(studio.voices.list("-")) and time.monotonic() < end:
        time.sleep(
            0.01
        )  # the starters are encoded in the background; counts below begin after them
    yield studio
    studio.close()


def finish(studio, job, limit_s: float = 20.0):
    """Until it is over and counted: a take is written, and a failure told, while the lane is still
    on its way to the books.
    """
    changed = threading.Event()
    job.listen(changed.set)
    studio.job_runner.credit(job, UNLIMITED)
    end = time.monotonic() + limit_s
    while (
        not ((snapshot := job.snapshot()).state in ("done", "failed", "cancelled") and job.is_made)
        and time.monotonic() < end
    ):
        changed.wait(0.01)
        changed.clear()
    return snapshot


def speak(studio, text="Hello there.", instruction="seconds=1", **kw):
    job = studio.synthesis.open(
        kw.pop("owner", ME),
        text_in=text,
        voice_id=kw.pop("voice_id", "alloy"),
        mode="instruct",
        instruction=instruction,
        **kw,
    )
    return job, finish(studio, job)


def test_a_streamed_answer_ends_when_its_take_can_be_found(studio, monkeypatch):
    """The page asks for the list of takes once, when it has heard the end."""
    from webui.api.speech_response import _stream
    from webui.studio.job_reader import Pacing

    may_save, record = threading.Event(), studio.takes.record
    monkeypatch.setattr(studio.takes, "record", lambda job: (may_save.wait(20), record(job)))
    job = studio.synthesis.open(
        ME, text_in="Hello.", voice_id="alloy", mode="instruct", instruction="seconds=1", seed=4
    )

    async def read() -> bool:
        pieces, actual = _stream(studio, job, False, Pacing(UNLIMITED)), 0
        while actual < 2 * RATE:
            actual += len(await anext(pieces))
        end = asyncio.ensure_future(anext(pieces, None))
        ended_early = bool((await asyncio.wait({end}, timeout=0.5))[0])
        may_save.set()
        assert await end is None
        return ended_early

    try:
        assert not asyncio.run(read())
    finally:
        may_save.set()
    assert [take.id for take in studio.takes.list(ME)] == [job.id]


def test_a_cancel_reaches_an_engine_that_is_in_the_midst_of_a_step(studio):
    job = studio.synthesis.open(
        ME, text_in="Hello.", voice_id="alloy", mode="instruct", instruction="seconds=30", seed=4
    )
    studio.job_runner.credit(job, RATE)
    studio.job_runner.cancel(job)
    lease = studio.engine_manager.lease()
    try:
        assert job.request.id in lease.engine.cancelled, "it need not wait for the step's end"
    finally:
        lease.release()
    assert finish(studio, job).state == "cancelled"


def test_a_hot_swap_does_not_drop_the_running_stream(studio):
    job = studio.synthesis.open(
        ME, text_in="Hello.", voice_id="alloy", mode="instruct", instruction="seconds=3", seed=4
    )
    studio.job_runner.credit(job, RATE)
    while job.produced < RATE:
        time.sleep(0.01)
    studio.engine_manager.start(lambda: FakeEngine(version="2")).join(20)
    after, snapshot = speak(studio, seed=4)
    assert after.engine_version == "2" and snapshot.state == "done"
    assert (
        finish(studio, job).state == "done"
        and job.engine_version == "1"
        and job.produced == 3 * RATE
    )
    whole, _ = speak(studio, instruction="seconds=3", seed=4)
    assert whole.pcm(0, RATE) == job.pcm(0, RATE)


def test_tags_the_engine_cannot_speak_are_not_read_aloud(studio):
    job, _ = speak(studio, text="Well [breath] hello <strong>you</strong> [laughter].")
    text = " ".join(job.request.segments)
    assert (
        "breath" not in text
        and "laughter" not in text
        and "strong" not in text
        and "hello" in text
        and "you" in text
    )


def test_speed_beyond_the_engines_range_is_made_by_tempo_at_the_same_pitch(studio):
    slow, snapshot = speak(studio, instruction="seconds=2", speed=0.25, seed=0)
    assert snapshot.state == "done" and slow.request.speed == 0.5 and slow.tempo == 0.5
    assert slow.produced == pytest.approx(4 * RATE, rel=0.03)
    plain, _ = speak(studio, instruction="seconds=2", seed=0)

    def pitch(job):
        x = audio.from_s16(job.pcm(RATE // 2, RATE // 2 + 16384))
        return np.abs(np.fft.rfft(x * np.hanning(len(x)))).argmax()

    assert abs(pitch(slow) - pitch(plain)) <= 1


def test_a_take_holds_what_was_heard_and_how_to_make_it_again(studio):
    job, snapshot = speak(studio, seed=12)
    assert snapshot.saved
    take = studio.takes.list(ME)[0]
    with wave.open(str(studio.takes.wav_path(ME, take.id))) as w:
        assert w.readframes(w.getnframes()) == job.pcm(0, job.produced)
    assert (take.request.seed, take.request.instruction, take.engine, len(take.peaks)) == (
        12,
        "seconds=1",
        "fake",
        160,
    )
    assert b"AI-generated" in studio.takes.wav_path(ME, take.id).read_bytes()[:200]
    second_job = studio.synthesis.open(
        ME,
        text_in=take.request.text,
        voice_id=take.request.voice,
        mode=take.request.mode,
        instruction=take.request.instruction,
        seed=take.request.seed,
    )
    finish(studio, second_job)
    assert second_job.pcm(0, second_job.produced) == job.pcm(0, job.produced)
    with pytest.raises(NotFound):
        studio.takes.get(OTHER, take.id)


def test_a_deleted_take_can_be_brought_back(studio):
    speak(studio)
    take = studio.takes.list(ME)[0]
    studio.takes.delete(ME, take.id)
    assert studio.takes.list(ME) == []
    with pytest.raises(NotFound):
        studio.takes.star(ME, take.id, True)  # another tab still shows it
    studio.takes.restore(ME, take.id)
    assert studio.takes.list(ME) == [take]
    studio.takes.delete(ME, take.id)
    studio.takes.close()  # the undo time is over
    with pytest.raises(NotFound):
        studio.takes.get(ME, take.id)


def test_a_draft_is_made_once_changed_and_saved(studio):
    draft = studio.drafts.make(ME, clip(12))
    with pytest.raises(NotAllowed):
        studio.synthesis.open(ME, text_in="Hi there.", voice_id=draft.id)
    _, snapshot = speak(studio, voice_id=draft.id, consent=True)
    assert snapshot.state == "done"
    encoded = studio.prompts.n_encoded
    speak(studio, voice_id=draft.id, consent=True)
    assert studio.prompts.n_encoded == encoded, "a voice's features are computed once"
    other = studio.drafts.change(ME, draft.id, window=(1.0, 6.0))
    assert other.id != draft.id and (other.start_s, other.end_s) == (1.0, 6.0)
    with pytest.raises(NotFound):
        studio.drafts.get(OTHER, draft.id)
    with pytest.raises(NotAllowed):
        studio.drafts.save(ME, other.id, "Lin", "", "")
    voice = studio.drafts.save(ME, other.id, "Lin", "你好，世界。", "me")
    assert voice.language == "zh" and voice in studio.voices.list(ME)
    assert studio.drafts.audio(ME, draft.id, 0.0)[:4] == b"RIFF"


def test_who_wishes_for_it_hears_that_a_machine_spoke(studio):
    def request_of(owner, text, **kw):
        return speak(studio, text, owner=owner, **kw)[0].request

    assert "AI" not in request_of(ME, "Hello there.").segments[-1]
    studio.takes.notice(ME, True)
    request = request_of(ME, "Hello there.")
    assert (
        request.segments[-1] == "This speech was generated by AI."
        and request.text == "Hello there."
    ), "the text stays what was typed"
    assert (
        request_of(ME, "你好。").segments[-1]
        == request_of(ME, "Hello.", language="yue").segments[-1]
        == "以上语音由人工智能合成。"
    )
    assert studio.takes.list(ME)[0].request.segments[-1] == "以上语音由人工智能合成。"
    assert "AI" not in request_of(OTHER, "Hello there.").segments[-1]
    studio.takes.notice(ME, False)
    assert "AI" not in request_of(ME, "Hello there.").segments[-1]


def test_a_saved_voice_is_made_ready_before_it_speaks(studio):
    draft = studio.drafts.make(ME, clip(5))
    voice = studio.drafts.save(ME, draft.id, "Lin", "", "me")
    lease = studio.engine_manager.lease()
    future = studio.prompts.begin(
        voice, lease.engine, lambda: pytest.fail("its prompt is not made twice")
    )
    assert future.result(20).engine == "fake"
    lease.release()


def test_the_language_of_a_voice_follows_its_transcript_until_somebody_says_it(studio):
    voice, _ = studio.voices.add(ME, clip(5), "Lin", consent="me")
    assert studio.voices.change(ME, voice.id, transcript="你好，世界。").language == "zh"
    assert studio.voices.change(ME, voice.id, transcript="Hello there, world.").language == "en"
    assert studio.voices.change(ME, voice.id, transcript="").language == ""
    studio.voices.change(ME, voice.id, language="yue")
    assert studio.voices.change(ME, voice.id, transcript="你好，世界。").language == "yue"


def test_noise_is_cleaned_as_a_steady_one_or_as_one_that_comes_and_goes(studio):
    draft = studio.drafts.make(ME, clip(5))
    steady, varying = (
        studio.drafts.change(ME, draft.id, clean=0.8, varying=v) for v in (False, True)
    )
    a, b = (studio.drafts.sound(d, whole=True).samples for d in (steady, varying))
    assert a.shape == b.shape and not np.array_equal(a, b)
    assert (
        studio.drafts.audio(ME, varying.id, 0.8, varying=True)
        == studio.drafts.audio(ME, draft.id, 0.8, True)
        != studio.drafts.audio(ME, draft.id, 0.8)
    )
    assert studio.drafts.change(ME, varying.id, window=(0.0, 4.0)).varying, (
        "it stays when something else is changed"
    )


def test_voice_features_of_a_saved_voice_survive_a_restart(studio, tmp_path):
    voice, _ = studio.voices.add(ME, clip(5), "Lin", consent="me")
    speak(studio, voice_id=voice.id)
    studio.close()
    second_studio = Studio(studio.settings)
    second_studio.start(FakeEngine).join(20)
    before = second_studio.prompts.n_encoded
    speak(second_studio, voice_id=voice.id)
    assert second_studio.prompts.n_encoded == before, "the prompt was on disk"
    second_studio.voices.delete(ME, voice.id)
    assert not [p for p in tmp_path.rglob("*") if voice.id in str(p)]
    second_studio.close()


class Packing(FakeEngine):
    """One whose segments are packed, as a big model's are."""

    def describe(self):
        return replace(super().describe(), segmentation=Segmentation(80, 60, 20))


def test_a_take_says_why_a_short_text_was_spoken_without_the_transcript(studio):
    studio.engine_manager.start(Packing).join(20)
    long = "This text is longer. It has two sentences, and that is enough for any clip of ours"
    for text, mode, notes in (("Yes", "cross_lingual", (SHORT_TEXT,)), (long, "zero_shot", ())):
        job = studio.synthesis.open(
            ME, text_in=text, voice_id="alloy", mode="zero_shot", transcript="Hello, how are you?"
        )
        assert finish(studio, job).state == "done"
        take = studio.takes.get(ME, job.id)
        assert (take.request.mode, take.voice_notes) == (mode, notes)
        assert [note for note in job.notes if note == SHORT_TEXT] == list(notes)
        assert take.request.segments == (f"{text}.",), "one call, with a full stop"
        assert studio.synthesis.preview(ME, text).segments == ((f"{text}.", "en"),)


def test_a_take_says_that_a_text_which_arrived_was_too_short_for_the_transcript(studio):
    """It could not be known when it was begun."""
    studio.engine_manager.start(Packing).join(20)
    params = {"voice_id": "alloy", "mode": "zero_shot", "transcript": "Hello, how are you today?"}
    for text, notes in (("Yes, ", (SHORT_ARRIVED,)), ("Yes, it is a fine day for all of us, ", ())):
        source_text, _ = studio.synthesis.open_text_stream(ME, **params)
        source_text.push(text)
        source_text.end()
        job = studio.synthesis.open(
            ME, text_in=source_text.first, text_source=source_text, **params
        )
        assert finish(studio, job).state == "done"
        take = studio.takes.get(ME, job.id)
        assert (take.request.mode, take.voice_notes) == ("zero_shot", notes)
