"""Do cuts, fixes and cleaning do what they promise, and no more?"""

import subprocess
import sys

import numpy as np
import pytest

from tests.voice_like import noisy, voice_like
from webui.audio import (
    Clip,
    cleaner_children,
    cleaning_hurts,
    close_cleaner,
    cut,
    denoise,
    inspect,
    loudness_lufs,
    raise_level,
    resample,
    trim_to_words,
)
from webui.errors import BadInput

VOICE = voice_like(6.0)


@pytest.fixture(scope="module", autouse=True)
def no_worker_left():
    yield
    close_cleaner()
    assert cleaner_children() == 0


def test_a_cut_keeps_50_ms_of_silence_and_fades():
    padded = Clip(
        np.concatenate([np.zeros(24000, np.float32), VOICE.samples, np.zeros(24000, np.float32)]),
        24000,
    )
    part = cut(padded, 0, 8)
    assert abs(part.duration_s - (6 - 0.5 + 0.1)) < 0.12
    assert part.samples[0] == 0 and part.samples[-1] == 0
    loud = np.flatnonzero(np.abs(part.samples) > 0.02)
    assert 0.03 < loud[0] / part.rate < 0.12


def test_a_cut_takes_the_part_asked_for():
    part = cut(VOICE, 2.0, 5.0)
    assert part.duration_s <= 3.0
    whole = np.correlate(VOICE.samples, part.samples[1000:5000], "valid")
    assert 2.0 <= np.argmax(whole) / VOICE.rate <= 3.0


@pytest.mark.parametrize(
    "start, end", [(3, 3), (5, 2), (7, 9), (float("nan"), 3), (0, float("nan"))]
)
def test_an_empty_part_is_refused(start, end):
    with pytest.raises(BadInput) as e:
        cut(VOICE, start, end)
    assert e.value.code == "bad_window"


def test_raise_level_reaches_minus_20_and_cures_the_warning():
    quiet = VOICE.with_samples(VOICE.samples * 0.01)
    assert "quiet" in [w.code for w in inspect(quiet).warnings]
    raised = raise_level(quiet)
    assert loudness_lufs(raised) == pytest.approx(-20, abs=1)
    assert inspect(raised).warnings == ()


def test_raise_level_limits_peaks_without_flat_tops():
    spiky = VOICE.samples * 0.01
    spiky[::24000] = 0.9
    raised = raise_level(VOICE.with_samples(spiky))
    assert np.abs(raised.samples).max() <= 0.9
    shout = VOICE.samples * 0.02
    shout[60000:72000] *= 12
    raised = raise_level(VOICE.with_samples(shout))
    assert np.abs(raised.samples).max() <= 0.9 and inspect(raised).clipping_ratio == 0


@pytest.mark.parametrize("code", ["cut_start", "cut_end"])
def test_trimming_removes_the_broken_word_and_its_warning(code):
    x, rate = VOICE.samples, VOICE.rate
    near = int(5.2 * rate) + int(np.argmax(np.abs(x[int(5.2 * rate) : int(5.5 * rate)])))
    broken = VOICE.with_samples(x[int(0.40 * rate) :] if code == "cut_start" else x[:near])
    report = inspect(broken)
    assert code in [w.code for w in report.warnings]
    mended = trim_to_words(broken, report)
    assert code not in [w.code for w in inspect(mended).warnings]
    assert broken.duration_s - 2 < mended.duration_s < broken.duration_s


def test_trimming_a_whole_clip_changes_nothing():
    assert trim_to_words(VOICE, inspect(VOICE)) is VOICE


@pytest.mark.parametrize("stationary", [True, False])
def test_denoise_lowers_the_noise_and_keeps_the_voice(stationary):
    dirty = noisy(VOICE, 15)
    cleaned = denoise(dirty, 0.7, stationary)
    assert len(cleaned.samples) == len(dirty.samples) and cleaned.rate == dirty.rate
    assert inspect(cleaned).snr_db > inspect(dirty).snr_db + 3
    assert loudness_lufs(cleaned) == pytest.approx(loudness_lufs(VOICE), abs=1.5)
    assert not cleaning_hurts(dirty, cleaned)


@pytest.mark.parametrize("rate", [8000, 48000])
def test_denoise_works_at_every_rate(rate):
    dirty = noisy(Clip(resample(VOICE.samples, VOICE.rate, rate), rate), 15)
    assert inspect(denoise(dirty, 0.7)).snr_db > inspect(dirty).snr_db + 3


def test_more_is_more_and_nothing_is_nothing():
    dirty = noisy(VOICE, 15)
    figures = [inspect(denoise(dirty, amount)).snr_db for amount in (0, 0.4, 0.8)]
    assert figures == sorted(figures) and figures[2] > figures[0] + 5
    assert denoise(dirty, 0) is dirty


def test_cleaning_is_the_same_every_time():
    dirty = noisy(VOICE, 15)
    np.testing.assert_array_equal(denoise(dirty, 0.6).samples, denoise(dirty, 0.6).samples)


def test_pieces_of_a_long_clip_join_without_a_step():
    long = noisy(voice_like(23.0), 20)
    cleaned = denoise(long, 0.5)
    for at_s in (10, 20):
        i = int(at_s * long.rate)
        around = np.abs(np.diff(cleaned.samples[i - 2400 : i + 2400]))
        assert abs(cleaned.samples[i] - cleaned.samples[i - 1]) <= around.max()
    assert inspect(cleaned).snr_db > inspect(long).snr_db + 3


@pytest.mark.parametrize("amount", [-0.1, 1.1, float("nan")])
def test_amounts_outside_are_refused(amount):
    with pytest.raises(BadInput):
        denoise(VOICE, amount)


def gated(clip, drop_db):
    """Over-denoised: every cell more than `drop_db` below the loudest is gone."""
    size, hop = 512, 128
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(clip.samples, size), size)[
        ::hop
    ] * np.hanning(size)
    spectra = np.fft.rfft(frames)
    spectra[np.abs(spectra) < np.abs(spectra).max() * 10 ** (-drop_db / 20)] = 0
    out = np.zeros(len(clip.samples) + 3 * size)
    for i, frame in enumerate(np.fft.irfft(spectra)):
        out[i * hop : i * hop + size] += frame / 2
    return clip.with_samples(out[size : size + len(clip.samples)])


def test_over_denoised_speech_is_called_worse():
    assert cleaning_hurts(VOICE, gated(VOICE, 20))


def test_muffled_speech_is_called_worse():
    spectrum = np.fft.rfft(VOICE.samples)
    spectrum[np.fft.rfftfreq(len(VOICE.samples), 1 / VOICE.rate) > 1500] *= 0.1
    assert cleaning_hurts(VOICE, VOICE.with_samples(np.fft.irfft(spectrum, len(VOICE.samples))))


@pytest.mark.parametrize("shift_s", [-0.083, 0.137])
def test_speech_trimmed_differently_is_not_worse(shift_s):
    n = int(abs(shift_s) * VOICE.rate)
    other = (
        VOICE.samples[n:]
        if shift_s < 0
        else np.concatenate([np.zeros(n, np.float32), VOICE.samples])
    )
    assert not cleaning_hurts(VOICE, VOICE.with_samples(other))
    assert cleaning_hurts(VOICE, gated(VOICE.with_samples(other), 20))


def test_the_same_speech_or_a_quieter_one_is_not_worse():
    assert not cleaning_hurts(VOICE, VOICE)
    assert not cleaning_hurts(VOICE, VOICE.with_samples(VOICE.samples * 0.5))


def test_neither_the_room_nor_its_cleaning_loads_torch():
    code = (
        "import sys, webui.audio as a; assert not {'torch', 'scipy.signal', 'noisereduce',"
        " 'soundfile', 'av'} & set(sys.modules), 'too much imported'; sys.argv = ['', 'clean', '0',"
        " '0', '0']; sys.path.insert(0, 'webui/audio/worker'); import denoise; assert 'torch' not"
        " in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
