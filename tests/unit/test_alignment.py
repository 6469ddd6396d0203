"""The times of segments against the samples: the silence between two sentences lies before the
boundary, at every speed and in every kind of take.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.engine import natural_setup
from tests.unit.test_arriving import PROMPT, REQUEST, Reading, reads
from tests.unit.test_continued import stop_in, wait_written
from tests.unit.test_studio import ME, finish, studio  # noqa: F401
from webui import audio
from webui.engine.espeak import EspeakEngine
from webui.errors import Busy, Conflict
from webui.settings import Paths, Settings
from webui.studio import SUBTITLES, LineRequest, Studio
from webui.studio.alignment import AlignedSegment, Alignment
from webui.studio.speech_job import SpeechJob
from webui.studio.text_source import TextSourceStream
from webui.types import CONVERT

TEXT = "The old clock struck nine. 今天天气很好，我们走吧。 It cost $3.50 in all."
PARTS = ["The old clock struck nine.", "今天天气很好，我们走吧。", "It cost $3.50 in all."]
NEAR_S, QUIET, LOUD = 0.05, 0.005, 0.02


@pytest.fixture(scope="module")
def builtin(tmp_path_factory):
    owner = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("data"))))
    engine = EspeakEngine(1, natural=[natural_setup.FOLDER])
    owner.start(lambda: engine).join(60)
    assert engine.natural.is_decided.wait(120)
    yield owner
    owner.close()


def say(studio, text=TEXT, **params):  # noqa: F811
    job = studio.synthesis.open(ME, text_in=text, voice_id="alloy", seed=3, **params)
    assert finish(studio, job, 120).state == "done"
    wait_written(studio)
    return job


def check_boundaries(alignment: Alignment) -> None:
    """Within NEAR_S before each segment's start it is quiet, and within NEAR_S behind it somebody
    speaks.
    """
    sound = audio.from_s16(alignment.pcm(0, alignment.n_samples))
    near = int(NEAR_S * alignment.rate)
    at = 0
    for segment in alignment.segments:
        assert segment.start == at < segment.end and segment.is_whole
        assert np.abs(sound[max(at - near, 0) : at]).max(initial=0) < QUIET, segment.text
        assert np.abs(sound[at : at + near]).max() > LOUD, segment.text
        at = segment.end
    assert at == alignment.n_samples == len(sound)


def natural(speed: float):
    long = [pytest.mark.thorough] if speed != 1.0 else []
    return pytest.param("builtin-natural", speed, marks=[natural_setup.needs_weights, *long])


@pytest.mark.parametrize(
    ("model", "speed"),
    [
        *(("builtin-instant", speed) for speed in (1.0, 2.5, 0.4)),
        *(natural(speed) for speed in (1.0, 2.5, 0.4)),
    ],
)
def test_sentences_begin_where_their_sound_does(builtin, model, speed):
    job = say(builtin, model=model, speed=speed)
    assert (job.tempo == 1.0) == (speed == 1.0), "the other speeds go through the time stretch"
    assert job.model == model
    alignment = builtin.alignments.of_take(ME, job.id)
    assert [s.text for s in alignment.segments] == PARTS
    assert [s.characters for s in alignment.segments] == [(0, 26), (27, 39), (40, 61)]
    assert alignment.segments[2].spoken_text == "It cost three dollars and fifty cents in all."
    check_boundaries(alignment)
    assert builtin.alignments.of_job(job).segments == alignment.segments


def test_words_of_english_are_told_where_a_recogniser_is_installed(builtin, monkeypatch):
    alignment = builtin.alignments.of_take(ME, say(builtin, model="builtin-instant").id)
    english, chinese, _ = alignment.segments
    aligner = builtin.word_aligner
    words, note = aligner.words(alignment, english)
    assert [w.text for w in words] == ["the", "old", "clock", "struck", "nine"] and note is None
    assert [w.start for w in words] == sorted(w.start for w in words)
    sound = audio.from_s16(alignment.pcm(english.start, english.end))
    loud = np.flatnonzero(np.abs(sound) > LOUD)
    near = 0.15 * alignment.rate
    assert abs(words[0].start - loud[0]) < near and abs(words[-1].end - loud[-1]) < near
    assert "English" in aligner.words(alignment, chinese)[1].en
    assert "not whole" in aligner.words(alignment, replace(english, is_whole=False))[1].en
    odd = replace(english, spoken_text="Zzyzx struck")
    assert "zzyzx" in aligner.words(alignment, odd)[1].en
    silent = replace(alignment, pcm=lambda start, end: bytes(2 * (end - start)))
    words, note = aligner.words(
        silent, replace(english, spoken_text="antidisestablishmentarianism " * 30)
    )
    assert words is None and note is not None
    monkeypatch.setattr("webui.studio.word_times.WAIT_S", 0.01)
    with aligner._lock, pytest.raises(Busy):
        aligner.words(alignment, english)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "not installed" in aligner.words(alignment, english)[1].en


def test_a_batch_line_is_aligned_and_so_is_one_with_the_same_sound(builtin):
    request = LineRequest(TEXT, "alloy", seed=3, model="builtin-instant")
    for _ in range(2):
        job = builtin.batch.submit(ME, [request])
        await_batch(builtin, job.id)
        line = builtin.batch.line(ME, job.id, 1)
        alignment = builtin.alignments.of_line(ME, line, builtin.batch.sound(ME, job.id, 1))
        assert [s.text for s in alignment.segments] == PARTS
        check_boundaries(alignment)
        row = builtin.batch.entry(line, 1)[1]
        assert [s["spoken_text"] for s in row["segments"]] == [
            s.spoken_text for s in alignment.segments
        ]
    assert builtin.batch.worker.synthesiser.n_cached == 1
    before = replace(line, segments=())  # made by an earlier version
    alignment = builtin.alignments.of_line(ME, before, builtin.batch.sound(ME, job.id, 1))
    assert [(s.text, s.start, s.end) for s in alignment.segments] == [(TEXT, 0, line.samples)]


def await_batch(studio, job_id: str) -> None:  # noqa: F811
    changed = threading.Event()
    unwatch = studio.batch.watch(job_id, changed.set)
    while studio.batch.get(ME, job_id).state == "running":
        assert changed.wait(60)
        changed.clear()
    unwatch()


def test_a_stopped_take_says_which_part_broke_off_and_a_continued_one_is_whole(studio):  # noqa: F811
    text = "First comes this. Then the 2nd one. Then it is over."
    params = {"mode": "instruct", "instruction": "chunk=0.5"}
    job = studio.synthesis.open(ME, text_in=text, voice_id="alloy", seed=7, **params)
    stop_in(studio, job, 1)
    stopped = studio.alignments.of_take(ME, job.id)
    assert stopped.state == "cancelled"
    assert [(s.text, s.is_whole) for s in stopped.segments] == [
        ("First comes this.", True),
        ("Then the 2nd one.", False),
    ]
    assert stopped.segments[-1].end == stopped.n_samples
    on = studio.synthesis.continue_take(ME, job.id)
    finish(studio, on)
    whole = studio.alignments.of_take(ME, on.id)
    assert [(s.text, s.is_whole) for s in whole.segments] == [
        ("First comes this.", True),
        ("Then the 2nd one.", True),
        ("Then it is over.", True),
    ]
    assert whole.segments[0] == stopped.segments[0]
    old = studio.takes.get(ME, on.id)
    studio.takes._store.change(old, marks=())  # as an earlier version wrote whole takes
    (only,) = studio.alignments.of_take(ME, on.id).segments
    assert (only.text, only.start, only.end) == (text, 0, whole.n_samples)
    studio.takes._store.change(old, request=replace(old.request, mode=CONVERT))
    with pytest.raises(Conflict):
        studio.alignments.of_take(ME, on.id)


def test_a_text_that_arrives_is_aligned_by_the_runs_in_which_it_is_spoken(studio):  # noqa: F811
    """An engine that reads while it speaks has several clauses in one of them."""
    source, owner = reads(), studio.voices.list(ME)[0]
    job = SpeechJob("take-x", REQUEST, ME, owner, 24_000, "e", "1", text_source=source)
    typed = "一。" * 70 + "二。" * 5
    source.push(typed)
    source.flush()
    source.push("三。四。")
    stream = TextSourceStream(Reading(), REQUEST, PROMPT, source, None)
    texts = []
    while source.can_step:
        if source.next == len(source.pieces) - 2:
            source.end()
        chunk = next(stream)
        job.accept(chunk, 0.0)
        texts = [s.text for s in studio.alignments.of_job(job).segments]
        if chunk.last:
            break
    assert len(texts) > 1 and "".join(texts) == typed + "三。四。"
    assert texts[-1] == "三。四。"


def test_subtitles_hold_one_cue_for_each_segment():
    odd = "A <b> & c\n\n-->"
    first = AlignedSegment(0, "One.", "One.", (0, 4), "en", 0, 24_000, True)
    segments = [first, replace(first, text=odd, start=24_000, end=24_000 * 3_723 + 12_000)]
    alignment = Alignment("t", "done", 24_000, segments[1].end, lambda a, b: b"", tuple(segments))
    assert SUBTITLES["srt"][1](alignment) == (
        "1\n00:00:00,000 --> 00:00:01,000\nOne.\n\n"
        "2\n00:00:01,000 --> 01:02:03,500\nA <b> & c\n→\n\n"
    )
    assert SUBTITLES["vtt"][1](alignment) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nOne.\n\n"
        "00:00:01.000 --> 01:02:03.500\nA &lt;b&gt; &amp; c\n→\n\n"
    )
