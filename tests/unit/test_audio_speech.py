"""The card says what a clip is of: no speech where there is none, and a change of speaker where one
is; no single voice is taken for either.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.test_audio_music import chords, with_music
from tests.voice_like import echoing, noisy, voice_like
from webui.audio import Clip, decode, inspect, measure, resample
from webui.audio.speaker_changes import speaker_changes
from webui.audio.spectrum import analyse

VOICES = Path(__file__).parents[2] / "assets" / "voices"
STARTERS = sorted(VOICES.glob("*.wav"))
ALL = [*STARTERS, *sorted((VOICES / "natural").glob("*.mp3"))]
RATE = 24000
T = np.arange(6 * RATE) / RATE
SYLLABLES = 0.1 + np.clip(np.sin(2 * np.pi * 3 * T), 0, 1)


def read_clip(path: Path) -> Clip:
    """At one rate and one level, so that nothing but the voices differs."""
    clip = decode(path.read_bytes())
    samples = resample(clip.samples, clip.rate, RATE)
    return Clip(np.float32(0.08) * samples / np.sqrt(np.mean(samples**2)), RATE)


def after_each_other(*clips: Clip) -> tuple[Clip, float]:
    """Both with a pause between, and the middle of that pause in seconds."""
    pause = 2e-4 * np.random.default_rng(3).standard_normal(round(0.35 * RATE))
    first, second = (clip.samples for clip in clips)
    pair = np.concatenate([first, pause, second]).astype(np.float32)
    return Clip(pair, RATE), (len(first) + len(pause) / 2) / RATE


def codes(clip: Clip) -> list[str]:
    return [w.code for w in inspect(clip).warnings]


@pytest.mark.parametrize("path", ALL, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_no_single_voice_is_taken_for_two_or_for_none(path):
    clip = read_clip(path)
    twice, _ = after_each_other(clip, clip.with_samples(0.4 * clip.samples))
    for kind in (clip, twice, noisy(clip, 20), echoing(clip, 0.4), with_music(clip, "struck", 5)):
        finding_codes = codes(kind)
        assert "speakers" not in finding_codes and "no_speech" not in finding_codes


@pytest.mark.parametrize(
    "first, other", [(0, 1), (0, 4), (1, 3), (2, 5), (1, 5), (4, 3)], ids=lambda i: STARTERS[i].stem
)
def test_a_change_of_speaker_is_found_and_no_part_goes_across(first, other):
    clip, at = after_each_other(read_clip(STARTERS[first]), read_clip(STARTERS[other]))
    report = inspect(clip)
    assert report.speaker_changes_s == pytest.approx((at,), abs=0.5)
    assert "speakers" in [w.code for w in report.warnings]
    change = report.speaker_changes_s[0]
    for window in (*report.windows, report.used):
        assert window.end_s <= change or window.start_s >= change
    assert report.uses_part and report.whole.end_s > change
    assert json.loads(json.dumps(report.to_json()))["speaker_changes_s"] == [change]


def test_three_turns_are_two_changes():
    first, second = read_clip(STARTERS[1]), read_clip(STARTERS[4])
    clip, at = after_each_other(first, second)
    clip, second_change_s = after_each_other(clip, first)
    assert speaker_changes(analyse(clip)) == pytest.approx((at, second_change_s), abs=0.5)


def tones(*hz: float) -> np.ndarray:
    return sum(np.sin(2 * np.pi * f * T) for f in hz) * SYLLABLES


NO_SPEECH = {
    "a tone that beeps": lambda: tones(440) * (np.sin(2 * np.pi * 1.5 * T) > 0),
    "a tone with syllables": lambda: tones(180),
    "a telephone's keys": lambda: tones(770, 1336),
    "three tones": lambda: tones(220, 277, 330),
    "music, struck": lambda: chords(len(T), RATE, "struck"),
    "music, held": lambda: chords(len(T), RATE, "held"),
    "dull noise that swells": lambda: (
        np.convolve(
            np.random.default_rng(0).standard_normal(len(T)), 0.95 ** np.arange(200), "same"
        )
        * SYLLABLES
    ),
}


@pytest.mark.parametrize("kind", NO_SPEECH)
def test_what_is_no_speech_is_said_and_never_called_good(kind):
    sound = NO_SPEECH[kind]()
    floor = 1e-4 * np.random.default_rng(1).standard_normal(len(sound))
    clip = Clip((0.5 * sound / np.abs(sound).max() + floor).astype(np.float32), RATE)
    assert [(w.code, w.tone) for w in inspect(clip).warnings] == [("no_speech", "bad")]


def test_a_part_is_measured_so_that_before_and_after_can_be_compared():
    clean = voice_like(5.0)
    noise, quiet = noisy(clean, 12), clean.with_samples(0.05 * clean.samples)
    assert measure(clean)["snr_db"] > measure(noise)["snr_db"] + 10
    assert measure(clean)["loudness_lufs"] > measure(quiet)["loudness_lufs"] + 20
