"""Music behind a voice is heard where it is plain; no voice is taken for music, in whatever room
and over whatever line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.voice_like import echoing, noisy, voice_like
from webui.audio import Clip, decode, inspect, resample
from webui.audio.music_detector import SHARE, has_music, music_share

STARTERS = sorted((Path(__file__).parents[2] / "assets" / "voices").glob("*.wav"))
SHARED = sorted((Path(__file__).parents[3] / "shared" / "audio").glob("*.wav"))


def chords(n: int, rate: int, kind: str, root_hz: float = 220.0) -> np.ndarray:
    """Four chords, two beats each, a bass below; `struck` dies away, `held` does not."""
    out, t = np.zeros(n + 2 * rate), np.arange(rate) / rate
    for i, at in enumerate(range(0, n, rate // 2)):
        notes = ((0, 4, 7), (9, 12, 16), (5, 9, 12), (7, 11, 14))[i // 2 % 4]
        shape = (
            np.exp(-3 * t) * np.minimum(1, t / 0.005)
            if kind == "struck"
            else np.clip(np.minimum(t / 0.05, (1 - t) / 0.05), 0, 1)
        )
        for note in (*notes, notes[0] - 12):
            out[at : at + rate] += shape * sum(
                np.sin(2 * np.pi * root_hz * 2 ** (note / 12) * k * t) / k for k in range(1, 7)
            )
    return out[:n]


def with_music(clip: Clip, kind: str, snr_db: float, root_hz: float = 220.0) -> Clip:
    music = chords(len(clip.samples), clip.rate, kind, root_hz)
    mixed = clip.samples + music * np.sqrt(np.mean(clip.samples**2) / np.mean(music**2)) * 10 ** (
        -snr_db / 20
    )
    return clip.with_samples(mixed / max(1.0, np.abs(mixed).max()))


def telephone(clip: Clip) -> Clip:
    return Clip(resample(clip.samples, clip.rate, 8000), 8000)


@pytest.mark.parametrize(
    "path",
    [*STARTERS, *(pytest.param(p, marks=pytest.mark.shared) for p in SHARED)],
    ids=lambda p: p.stem,
)
def test_no_voice_is_taken_for_music(path):
    clip = decode(path.read_bytes())
    hum = 0.02 * sum(
        np.sin(2 * np.pi * 50 * k * np.arange(len(clip.samples)) / clip.rate) for k in range(1, 12)
    )
    for recording in (
        clip,
        noisy(clip, 20),
        noisy(clip, 5),
        echoing(clip, 0.4),
        echoing(clip, 1.5),
        telephone(clip),
        telephone(echoing(clip, 0.8)),
        telephone(noisy(clip, 10)),
        clip.with_samples(clip.samples + hum),
    ):
        assert music_share(recording) < SHARE / 2


def test_nor_are_somebody_on_one_note_and_a_machine():
    t = np.arange(6 * 24000) / 24000
    hummed = (
        sum(np.sin(2 * np.pi * 196 * k * t) / k for k in range(1, 16))
        * np.clip(np.sin(2 * np.pi * 0.7 * t), 0, 1)
        * 0.1
    )
    fan = voice_like(6.0).samples + sum(
        0.02 * np.sin(2 * np.pi * hz * t) for hz in (1234, 1777, 2039)
    )
    assert not has_music(Clip(hummed.astype(np.float32), 24000)) and not has_music(
        Clip(fan.astype(np.float32), 24000)
    )


@pytest.mark.parametrize("kind", ["struck", "held"])
@pytest.mark.parametrize("path", STARTERS, ids=lambda p: p.stem)
def test_chords_as_loud_as_the_voice_are_heard(path, kind):
    clip = decode(path.read_bytes())
    assert all(has_music(with_music(clip, kind, 0, root)) for root in (165.0, 220.0, 330.0))
    assert has_music(telephone(with_music(clip, kind, 0)))


def test_ten_decibels_below_it_most_are():
    clips = [decode(p.read_bytes()) for p in STARTERS]
    is_detected = [
        has_music(with_music(clip, kind, 10, root))
        for clip in clips
        for kind in ("struck", "held")
        for root in (165.0, 220.0, 330.0)
    ]
    assert np.mean(is_detected) > 0.6


def test_it_is_a_warning_with_its_cure():
    (warning,) = [
        w.to_json()
        for w in inspect(with_music(voice_like(6.0), "held", 3)).warnings
        if w.code == "music"
    ]
    assert (
        warning["tone"] == "warn"
        and warning["fix"] == "Try denoise"
        and warning["message_zh"] == "有背景音乐。"
    )


@pytest.mark.parametrize("n", [1, 800, 4607, 4608])
def test_what_is_too_short_to_tell_is_not_music(n):
    assert music_share(Clip(np.zeros(n, np.float32), 8000)) == 0.0
