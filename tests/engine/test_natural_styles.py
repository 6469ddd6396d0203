"""The base voices that are shipped: all there, and the nearest one is of the language that is
spoken.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.engine import builtin_setup
from webui.engine.espeak.voice_profile import listen
from webui.engine.natural import styles
from webui.engine.natural.generator import SHAPES
from webui.engine.natural.voice import NaturalVoice

VOICES = styles.read()
NAMES = {
    "zf_xiaobei", "zf_xiaoxiao", "zm_yunjian", "zm_yunxi",
    "af_heart", "af_bella", "am_michael", "am_fenrir", "bf_emma",
}  # fmt: skip


def test_the_asset_is_the_one_that_its_note_describes():
    note = (ROOT / "assets" / "natural" / "README.md").read_text("utf-8")
    assert hashlib.sha256(styles.FILE.read_bytes()).hexdigest() in note
    assert styles.FILE.stat().st_size < 3_000_000


def test_every_voice_has_a_style_for_each_length_and_what_it_sounds_like():
    assert {v.name for v in VOICES} == NAMES
    for voice in VOICES:
        assert voice.styles.shape == (200, 256) and np.isfinite(voice.styles).all()
        assert np.array_equal(voice.style(0), voice.styles[0])
        assert np.array_equal(voice.style(7), voice.styles[6])
        assert np.array_equal(voice.style(999), voice.styles[-1])
        is_man = voice.name[1] == "m"
        assert (70 if is_man else 150) < np.exp(voice.base.log_f0) < (190 if is_man else 280)
        assert voice.base.voiced.shape[1] == voice.base.unvoiced.shape[1] == 257
        assert 0.03 < voice.rms < 0.3
        for pitch in (-9.0, voice.base.log_f0, 9.0):
            for name, value in voice.statistics.of(0.6, pitch).items():
                n_norms, n_channels = SHAPES[name]
                assert value.shape == (n_norms, 2, n_channels) and np.isfinite(value).all()
                assert (value[:, 1] > 0).all()


@pytest.mark.parametrize("language", styles.LANGUAGES)
def test_the_nearest_is_of_the_language_and_a_voice_is_nearest_to_itself(language):
    reference = listen(*builtin_setup.clip("starter-zh-low"))
    assert styles.nearest(reference, VOICES, language).language == language
    for voice in (v for v in VOICES if v.language == language):
        itself = replace(reference, mean_voiced=voice.mean_voiced, log_f0=voice.base.log_f0)
        assert styles.nearest(itself, VOICES, language) is voice
        assert styles.distance(itself, voice) < 1e-3


@pytest.mark.parametrize("name", ["starter-zh-high", "starter-en-low"])
def test_the_pitch_goes_to_the_reference_and_moods_move_it(name):
    profile = listen(*builtin_setup.clip(name))
    bend = NaturalVoice(profile, {}, VOICES).bend("zh")
    own_hz, wanted_hz = np.exp(bend.voice.base.log_f0), np.exp(profile.log_f0)
    for shift_st, widen in ((0.0, 1.0), (3.0, 1.5), (-1.5, 0.6)):
        scale, shift_hz = bend.pitch(shift_st, widen)
        assert np.isclose(scale * own_hz + shift_hz, wanted_hz * 2 ** (shift_st / 12))
        assert scale <= 1.6 * wanted_hz / own_hz * 2 ** (shift_st / 12) + 1e-6
    assert 0.8 < bend.speed < 1.2 and 0.1 < bend.gain < 10


def test_the_tones_of_a_monotonous_reference_are_still_heard():
    profile = listen(*builtin_setup.clip("starter-zh-low"))
    for spread in (0.01, 0.1):
        monotonous = replace(profile, log_f0_sd=spread)
        bend = NaturalVoice(monotonous, {}, VOICES).bend("zh")
        scale, _ = bend.pitch()
        assert np.isclose(scale * np.exp(bend.voice.base.log_f0), 0.85 * np.exp(profile.log_f0))


def test_a_voice_is_lowered_rather_than_raised():
    """The breathy reference lies between a man's voice and a woman's; its timbre is a little nearer
    to the man's.
    """
    profile = listen(*builtin_setup.clip("starter-zh-breathy"))
    by_name = {voice.name: voice for voice in VOICES}
    man, woman = by_name["zm_yunxi"], by_name["zf_xiaobei"]
    assert man.base.log_f0 < profile.log_f0 < woman.base.log_f0
    assert styles.nearest(profile, VOICES, "zh") is woman


def test_no_starter_is_said_by_a_voice_far_from_its_pitch():
    for clip in (ROOT / "assets" / "voices").glob("starter-*.wav"):
        profile = listen(*builtin_setup.clip(clip.stem))
        for language in styles.LANGUAGES:
            voice = styles.nearest(profile, VOICES, language)
            assert abs(voice.base.log_f0 - profile.log_f0) < 5 * np.log(2) / 12, clip.stem
