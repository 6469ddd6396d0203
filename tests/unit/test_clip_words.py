"""Clip and transcript belong together: which part of a clip is used, whose words count, and what is
said where none do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.engine.fake import FakeEngine
from tests.voice_like import file_of, voice_like
from webui import audio
from webui.errors import BadInput
from webui.settings import Paths, Settings
from webui.studio import Studio
from webui.studio.request_builder import NO_TRANSCRIPT, choose_mode
from webui.types import MODES, Abilities, SpeechRequest, Voice

ME = "local/me"
WORDS = "大家好，这是一段用来测试的录音，希望你喜欢这个声音。"


def padded(seconds: float, silence_s: float) -> audio.Clip:
    """Speech with a quiet room around it."""
    clip = voice_like(seconds, lead_s=0.05, tail_s=0.05)
    room = 2e-4 * np.random.default_rng(5).standard_normal(round(silence_s * clip.rate))
    return clip.with_samples(np.concatenate([room, clip.samples, room]).astype(np.float32))


@pytest.fixture(scope="module")
def long_clip() -> bytes:
    return file_of(voice_like(34.0, rate=16000))


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    studio = Studio(Settings(paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("studio"))))
    studio.start(FakeEngine).join(20)
    yield studio
    studio.close()


def ask(studio, voice_id="", text="你好，很高兴认识你。", mode="zero_shot", **more):
    return studio.synthesis.open(ME, text_in=text, voice_id=voice_id, mode=mode, **more)


@pytest.mark.parametrize("seconds,silence_s", [(4, 0), (4, 3), (14, 1), (28, 4)])
def test_all_of_a_clip_up_to_30_s_is_used_without_its_outer_silence(seconds, silence_s):
    report = audio.inspect(padded(seconds, silence_s))
    assert report.used == report.whole
    assert report.whole.start_s == pytest.approx(silence_s, abs=0.2)
    assert report.whole.end_s == pytest.approx(silence_s + seconds, abs=0.6)
    assert "too_long" not in [w.code for w in report.warnings]


def test_of_a_longer_clip_a_part_is_proposed_and_that_is_said():
    report = audio.inspect(voice_like(34.0, rate=16000))
    assert report.whole is None and report.used == report.windows[0]
    [advice] = [w for w in report.warnings if w.code == "too_long"]
    assert "exactly the part in use" in advice.sentences[0] and report.to_json()["whole"] is None


def test_nobody_may_choose_a_part_that_no_model_takes(studio, long_clip):
    draft = studio.drafts.make(ME, long_clip)
    with pytest.raises(BadInput) as error:
        studio.drafts.change(ME, draft.id, window=(0.0, 33.0))
    assert (error.value.code, error.value.param) == ("too_long", "window")


def test_a_saved_voice_keeps_the_transcript_of_a_whole_clip(studio):
    voice, draft = studio.voices.add(ME, file_of(voice_like(14)), "A", WORDS, consent="me")
    assert voice.transcript == WORDS and not draft.notes and draft.duration_s > 12
    assert voice.duration_s == pytest.approx(draft.duration_s, abs=0.1)


def test_a_saved_voice_of_a_longer_clip_has_no_transcript_unless_its_part_is_named(
    studio, long_clip
):
    voice, draft = studio.voices.add(ME, long_clip, "B", WORDS, consent="me")
    [(en, zh)] = draft.notes
    assert voice.transcript == "" and "left out" in en and "未使用" in zh
    voice, draft = studio.voices.add(ME, long_clip, "C", WORDS, consent="me", window=(3.0, 9.0))
    assert voice.transcript == WORDS and not draft.notes
    assert (draft.start_s, draft.end_s) == (3.0, 9.0)


@pytest.mark.parametrize(
    "transcript,cause", [(WORDS * 5, "says more"), ("好。", "leaves out"), (WORDS, "")]
)
def test_saving_warns_of_a_transcript_that_hardly_fits(studio, transcript, cause):
    voice, draft = studio.voices.add(ME, file_of(voice_like(6)), "D", transcript, consent="me")
    assert voice.transcript == transcript, "nothing is refused"
    assert len(draft.notes) == bool(cause) and all(cause in en for en, _ in draft.notes)


def test_silence_around_a_clip_makes_no_transcript_odd():
    clip = padded(6, 12)
    report = audio.inspect(clip)
    used_s = report.used.end_s - report.used.start_s
    assert audio.check_transcript(report, used_s, WORDS) is None


def test_a_transcript_of_a_longer_clip_that_came_along_is_left_out_and_said(studio, long_clip):
    job = ask(studio, reference=long_clip, transcript=WORDS, consent=True)
    assert (job.request.mode, job.request.transcript) == ("cross_lingual", "")
    [(en, _)] = job.notes
    assert "left out" in en and job.voice_notes == tuple(job.notes), "said once, in the take too"
    job = ask(studio, reference=file_of(voice_like(12)), transcript=WORDS, consent=True)
    assert (job.request.mode, job.request.transcript) == ("zero_shot", WORDS) and not job.notes


def test_without_a_transcript_a_clip_is_spoken_cross_lingually_and_that_is_said(studio):
    draft = studio.drafts.make(ME, file_of(voice_like(5)))
    job = ask(studio, draft.id, consent=True)
    assert job.request.mode == "cross_lingual"
    assert job.notes == [NO_TRANSCRIPT] and job.voice_notes == (NO_TRANSCRIPT,)
    job = ask(studio, draft.id, consent=True, transcript=WORDS)
    assert (job.request.mode, job.notes) == ("zero_shot", [])


def test_an_engine_that_finds_a_transcript_odd_speaks_and_says_so(studio):
    job = ask(studio, "alloy", transcript="a misfit")
    assert job.request.transcript == "a misfit"
    assert "another clip" in job.notes[0][0] and job.voice_notes == tuple(job.notes)


def test_what_needs_no_transcript_is_left_as_it_was():
    about = Abilities("e", "1", 24000, MODES, ("zh",), told_clones=True)

    def mode_of(voice_id, transcript="", instruction="", **more):
        voice = Voice(voice_id, "V", "zh", transcript, "f", 3.0, 0.0)
        request = SpeechRequest("t", "你好", voice_id, segments=("你好",))
        request, _, notes = choose_mode(about, request, voice, "zero_shot", instruction, **more)
        return request.mode, notes

    assert mode_of("preset-1") == ("zero_shot", []), "an engine's own voices bring their words"
    assert mode_of("v", instruction="开心") == ("instruct", [NO_TRANSCRIPT]), "nothing is lost"
    assert mode_of("v", WORDS) == ("zero_shot", [])
    assert mode_of("v", reads_transcripts=False) == ("zero_shot", [])
    why = ("Left out.", "未使用。")
    assert mode_of("v", notes=[why]) == ("cross_lingual", [why]), "said once"
