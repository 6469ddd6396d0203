"""Does every kind of sound file come out as the sound that went in?"""

import base64
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import webui.audio
from tests.voice_like import container_of, file_of, video_of, voice_like
from webui.api.audio_field import sound_in
from webui.audio import (
    MAX_BYTES,
    MAX_VIDEO_BYTES,
    Clip,
    close_decoder,
    decode,
    decoder_children,
    inspect,
    resample,
)
from webui.audio.file_type import sniff
from webui.errors import BadInput, ClipTooLarge

VOICE = voice_like(2.0)


def likeness(a, b):
    n = min(len(a), len(b))
    spectra = [np.abs(np.fft.rfft(x[:n])) for x in (a, b)]
    return float(
        np.dot(*spectra) / np.sqrt(np.dot(spectra[0], spectra[0]) * np.dot(spectra[1], spectra[1]))
    )


@pytest.mark.parametrize(
    "form, kind",
    [
        ("WAV", "PCM_16"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("AIFF", "PCM_24"),
        ("CAF", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("MP3", "MPEG_LAYER_III"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
    ],
)
def test_soundfile_formats(form, kind):
    clip = decode(file_of(VOICE, form=form, kind=kind))
    assert clip.rate == VOICE.rate and clip.channels == 1
    assert abs(clip.duration_s - 2.0) < 0.1
    assert likeness(clip.samples, VOICE.samples) > 0.97


@pytest.mark.parametrize(
    "form, codec, rate", [("webm", "libopus", 48000), ("mp4", "aac", 44100), ("adts", "aac", 44100)]
)
def test_what_browsers_record(form, codec, rate):
    clip = decode(container_of(VOICE, form, codec, rate))
    assert clip.rate == rate and abs(clip.duration_s - 2.0) < 0.1
    assert likeness(clip.samples, resample(VOICE.samples, VOICE.rate, rate)) > 0.9


@pytest.mark.parametrize(
    "form, codec, pictures",
    [
        ("mp4", "aac", "mpeg4"),
        ("mov", "pcm_s16le", "mpeg4"),
        ("webm", "libopus", "libvpx"),
        ("matroska", "libopus", "libvpx"),
        ("matroska", "pcm_s16le", "mpeg4"),
    ],
)
def test_the_sound_of_a_video_is_taken(form, codec, pictures):
    clip = decode(video_of(form, [VOICE], codec, pictures))
    assert abs(clip.duration_s - 2.0) < 0.1 and not clip.is_first_track
    assert likeness(clip.samples, resample(VOICE.samples, VOICE.rate, 48000)) > 0.9


@pytest.mark.parametrize("form", ["mp4", "mov", "matroska"])
def test_of_several_tracks_the_first_is_taken_and_said(form):
    other = voice_like(2.0, seed=5, f0_hz=230)
    clip = decode(video_of(form, [VOICE, other]))
    assert likeness(clip.samples, resample(VOICE.samples, VOICE.rate, 48000)) > 0.9
    assert "first_track" in [w.code for w in inspect(clip).warnings]


@pytest.mark.parametrize("form, pictures", [("mp4", "mpeg4"), ("webm", "libvpx")])
def test_a_video_without_sound_is_said_so(form, pictures):
    with pytest.raises(BadInput) as e:
        decode(video_of(form, [], pictures=pictures))
    assert e.value.code == "no_sound"


def test_a_video_may_be_larger_than_a_sound_file_and_has_its_own_limit():
    data = video_of("mov", [VOICE], "pcm_s16le")
    padding = (12 << 20).to_bytes(4, "big") + b"free" + bytes((12 << 20) - 8)
    assert len(data + padding) > MAX_BYTES and abs(decode(padding + data).duration_s - 2.0) < 0.1
    with pytest.raises(ClipTooLarge):
        decode(data.ljust(MAX_VIDEO_BYTES + 1, b"\0"))


def test_a_video_may_come_inside_json():
    data = video_of("mov", [VOICE])
    sent = "data:video/quicktime;base64," + base64.b64encode(data).decode()
    assert abs(decode(sound_in(sent, "ref_audio")).duration_s - 2.0) < 0.1


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_rates_are_kept(rate):
    assert decode(file_of(np.sin(np.arange(rate) * 0.1), rate)).rate == rate


@pytest.mark.parametrize("rate", [96000, 192000])
def test_high_rates_come_down_to_48_khz_and_the_card_still_knows(rate):
    clip = decode(file_of(0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate), rate))
    assert (clip.rate, clip.source_hz, len(clip.samples)) == (48000, rate, 48000)
    assert np.argmax(np.abs(np.fft.rfft(clip.samples))) == 440


def test_channels_that_cancel_do_not_vanish():
    clip = decode(
        file_of(np.stack([VOICE.samples, -VOICE.samples], axis=1), VOICE.rate, kind="FLOAT")
    )
    assert clip.channels == 2
    np.testing.assert_array_equal(np.abs(clip.samples), np.abs(VOICE.samples))


def test_one_silent_channel_costs_no_level():
    clip = decode(
        file_of(
            np.stack([np.zeros_like(VOICE.samples), VOICE.samples], axis=1),
            VOICE.rate,
            kind="FLOAT",
        )
    )
    np.testing.assert_array_equal(clip.samples, VOICE.samples)


def test_two_speakers_on_two_channels_are_both_heard():
    left, right = VOICE.samples, voice_like(2.0, seed=5, f0_hz=220).samples
    clip = decode(file_of(np.stack([left, right], axis=1), VOICE.rate, kind="FLOAT"))
    np.testing.assert_allclose(clip.samples, (left + right) / 2, atol=1e-6)


def test_broken_floats_are_cleaned_and_wild_ones_scaled():
    wild = VOICE.samples.copy() * 30000
    wild[[100, 2000]] = np.nan, np.inf
    clip = decode(file_of(wild, VOICE.rate, kind="FLOAT"))
    assert np.isfinite(clip.samples).all() and 0.99 < np.abs(clip.samples).max() <= 1.0


def test_all_broken_floats_are_refused():
    with pytest.raises(BadInput) as e:
        decode(file_of(np.full(24000, np.nan, np.float32), 24000, kind="FLOAT"))
    assert e.value.code == "bad_audio"


def test_a_file_that_breaks_off_gives_what_it_has():
    whole = file_of(VOICE, form="FLAC")
    clip = decode(whole[: len(whole) * 2 // 3])
    assert 0.8 < clip.duration_s < 1.7


def test_a_recording_that_was_never_finished_is_read():
    whole = container_of(VOICE, "webm", "libopus", 48000)
    assert 0.8 < decode(whole[: len(whole) * 2 // 3]).duration_s < 1.9


def test_content_counts_not_the_order_of_tags():
    mp3 = file_of(VOICE, form="MP3", kind="MPEG_LAYER_III")
    tag = b"ID3\x04\0\0" + bytes([0, 0, 1, 0]) + b"\0" * 128
    assert sniff(tag + mp3) == "mp3"
    assert abs(decode(tag + mp3).duration_s - 2.0) < 0.1


def test_many_at_once_get_their_own_sound_and_leave_one_standby():
    clips = [Clip(np.full(2400, k / 100, np.float32), 24000) for k in range(1, 13)]
    results = {}

    def work(k, clip):
        results[k] = decode(file_of(clip, kind="FLOAT")).samples

    threads = [threading.Thread(target=work, args=item) for item in enumerate(clips)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, clip in enumerate(clips):
        np.testing.assert_array_equal(results[k], clip.samples)
    assert decoder_children() == 1
    close_decoder()
    assert decoder_children() == 0


def test_without_a_container_decoder_the_sentence_names_the_kind(monkeypatch):
    def no_reader(kind, data):
        return 3, 0, 0, 0, b""

    monkeypatch.setattr("webui.audio.decoder._readers.read", no_reader)
    with pytest.raises(BadInput) as e:
        decode(b"\x1aE\xdf\xa3 webm")
    assert "webm" in e.value.en and "webm" in e.value.zh and e.value.code == "bad_audio"


def test_the_worker_reports_a_missing_container_decoder(tmp_path):
    worker = Path(webui.audio.__file__).parent / "worker"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['av'] = None; import decode; "
        "print(decode.run('webm', [60], b'x')[0], decode.run('wav', [60], b'RIFF    WAVE')[0])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(worker)], capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["3", "3"]
