"""Bytes, headers and the streaming tools: exact, and blind to how the stream is cut."""

import io
import struct
import wave

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.voice_like import voice_like
from webui.audio import (
    Resampler,
    SilenceTrim,
    TimeStretch,
    from_s16,
    peaks,
    resample,
    to_s16,
    wav_header,
)

RATE = 24000


def test_every_16_bit_value_survives_the_round_trip():
    data = np.arange(-32768, 32768).astype("<i2").tobytes()
    assert to_s16(from_s16(data)) == data


def test_halves_go_to_even_and_excess_is_clipped():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32) / 32768
    assert np.frombuffer(to_s16(x), "<i2").tolist() == [0, 2, 2, 0, -2]
    assert np.frombuffer(to_s16(np.array([1.0, 2.0, -1.0, -7.0], np.float32)), "<i2").tolist() == [
        32767,
        32767,
        -32768,
        -32768,
    ]


@pytest.mark.parametrize("label", ["", "AI-generated speech (Kaikou)", "odd", "由人工智能合成"])
def test_wav_header_is_true(label):
    pcm = to_s16(np.sin(np.arange(1001) * 0.1).astype(np.float32))
    data = wav_header(RATE, 1001, label) + pcm
    assert struct.unpack("<I", data[4:8])[0] == len(data) - 8
    assert (len(data) - len(pcm)) % 2 == 0
    with wave.open(io.BytesIO(data)) as f:
        assert (f.getnchannels(), f.getsampwidth(), f.getframerate(), f.getnframes()) == (
            1,
            2,
            RATE,
            1001,
        )
        assert f.readframes(2000) == pcm
    sound = soundfile.SoundFile(io.BytesIO(data))
    assert len(sound) == 1001 and sound.comment == label


def test_endless_header_keeps_its_place():
    head = wav_header(RATE, None)
    assert head[4:8] == head[40:44] == b"\xff" * 4 and len(head) == 44
    assert wav_header(RATE, None, "x").endswith(b"data" + b"\xff" * 4)


def test_peaks_are_n_bars_of_the_loudest():
    x = np.zeros(2400, np.float32)
    x[1200:1300] = -0.5
    bars = peaks(x, 24)
    assert len(bars) == 24 and bars[12] == 1.0 and sum(bars) == 1.0
    assert peaks(np.zeros(0, np.float32), 5) == peaks(np.zeros(100, np.float32), 5) == [0.0] * 5
    assert len(peaks(x[:7], 160)) == 160


def partition(x, sizes):
    at = 0
    for size in sizes:
        yield x[at : at + size]
        at += size
    yield x[at:]


VOICE = voice_like(2.0, RATE).samples


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 6000), max_size=30),
    factor=st.sampled_from([0.25, 0.5, 0.83, 1.0, 1.3, 2.0, 4.0]),
)
def test_tempo_does_not_care_how_the_stream_is_cut(sizes, factor):
    whole = TimeStretch(RATE, factor)
    expected = np.concatenate([whole.push(VOICE), whole.flush()])
    tempo = TimeStretch(RATE, factor)
    actual = np.concatenate(
        [*(tempo.push(part) for part in partition(VOICE, sizes)), tempo.flush()]
    )
    np.testing.assert_array_equal(actual, expected)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 6000), max_size=30))
def test_lead_trim_does_not_care_how_the_stream_is_cut(sizes):
    expected = SilenceTrim(RATE).push(VOICE)
    trim = SilenceTrim(RATE)
    np.testing.assert_array_equal(
        np.concatenate([trim.push(part) for part in partition(VOICE, sizes)]), expected
    )


def test_lead_trim_keeps_10_ms_before_the_first_sound():
    x = np.concatenate(
        [np.full(5000, 1e-4, np.float32), np.full(100, 0.1, np.float32), np.zeros(900, np.float32)]
    )
    trim = SilenceTrim(RATE)
    out = np.concatenate([trim.push(part) for part in partition(x, [480] * 10)])
    assert len(out) == 240 + 1000 and trim.dropped == 5000 - 240
    np.testing.assert_array_equal(out, x[5000 - 240 :])


def test_lead_trim_leaves_a_prompt_start_alone():
    x = np.full(1000, 0.2, np.float32)
    assert SilenceTrim(RATE).push(x).tolist() == x.tolist()


@pytest.mark.parametrize("factor", [0.25, 0.5, 0.8, 1.25, 2.0, 4.0])
@pytest.mark.parametrize("f0", [90, 233])
def test_tempo_keeps_pitch_and_sets_length(factor, f0):
    t = np.arange(3 * RATE) / RATE
    x = sum(0.2 / k * np.sin(2 * np.pi * f0 * k * t + k) for k in range(1, 12)).astype(np.float32)
    tempo = TimeStretch(RATE, factor)
    y = np.concatenate([tempo.push(x), tempo.flush()])
    assert abs(len(y) * factor / len(x) - 1) < 0.02
    body = y[len(y) // 8 : -len(y) // 8]
    spectrum = np.abs(np.fft.rfft(body * np.hanning(len(body)), 1 << 18))
    hz = np.fft.rfftfreq(1 << 18, 1 / RATE)
    near = (hz > f0 * 0.7) & (hz < f0 * 1.4)
    assert abs(hz[near][np.argmax(spectrum[near])] / f0 - 1) < 0.01
    assert np.sqrt(np.mean(body**2)) == pytest.approx(np.sqrt(np.mean(x**2)), rel=0.1)


def test_tempo_one_is_bit_exact_and_immediate():
    tempo = TimeStretch(RATE, 1.0)
    assert tempo.push(VOICE).tobytes() == VOICE.tobytes() and not len(tempo.flush())


@pytest.mark.parametrize("n", [0, 1, 100, 700, 1500])
@pytest.mark.parametrize("factor", [0.25, 0.7, 3.0])
def test_tempo_of_next_to_nothing(n, factor):
    tempo = TimeStretch(RATE, factor)
    assert len(np.concatenate([tempo.push(VOICE[:n]), tempo.flush()])) == round(n / factor)


def test_tempo_gives_sound_early_and_holds_little():
    tempo = TimeStretch(RATE, 1.5)
    assert len(tempo.push(VOICE[: RATE // 15])) > 0  # 67 ms in, the first sound is out
    for i in range(50):
        tempo.push(VOICE[i * 480 : i * 480 + 480])
        assert len(tempo._buffer) < RATE // 3


@pytest.mark.parametrize("factor", [0, 0.2, 4.1, float("nan")])
def test_tempo_refuses_what_it_cannot(factor):
    with pytest.raises(ValueError):
        TimeStretch(RATE, factor)


def test_a_stream_is_resampled_as_the_whole_is_whatever_the_pieces():
    rng = np.random.default_rng(4)
    pcm = to_s16(0.3 * rng.standard_normal(22050).astype(np.float32))
    whole = to_s16(resample(from_s16(pcm), 22050, 24000))
    for size in (14, 700, 44_000, 10**6):
        resampler = Resampler(22050, 24000)
        assert (
            b"".join(
                [
                    *(resampler.push(pcm[at : at + size]) for at in range(0, len(pcm), size)),
                    resampler.flush(),
                ]
            )
            == whole
            and len(whole) == 48000
        )
    assert Resampler(22050, 24000).flush() == b""


def test_resample_keeps_tone_and_length():
    x = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE).astype(np.float32)
    y = resample(x, RATE, 16000)
    assert y.dtype == np.float32 and len(y) == 16000 and np.argmax(np.abs(np.fft.rfft(y))) == 440
    assert resample(x, RATE, RATE) is x
