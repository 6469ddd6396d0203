"""Each bad clip: a named error with a whole sentence in both languages, no file left, no process
left beyond the standby.
"""

import os
import struct
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest
import soundfile

from tests.voice_like import container_of, file_of, voice_like
from webui.audio import Clip, close_decoder, decode, decoder_children, inspect
from webui.audio.decoder import TOO_LARGE
from webui.audio.worker_process import WorkerLost, WorkerProcess
from webui.errors import BadInput, KaikouError, TooLarge
from webui.frames import pack

RATE = 16000


def bomb(form, kind, rate, hours):
    """A small file that unpacks to hours of silence."""
    with tempfile.TemporaryFile() as f:
        with soundfile.SoundFile(f, "w", rate, 1, kind, format=form) as out:
            second = np.zeros(rate * 60, np.int16)
            for _ in range(round(hours * 60)):
                out.write(second)
        f.seek(0)
        return f.read()


def lying_wav():
    """157 bytes that claim two gigabytes of sound."""
    head = (
        b"RIFF"
        + struct.pack("<I", 0x7FFFFFF0)
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, RATE, RATE * 2, 2, 16)
    )
    return (head + b"data" + struct.pack("<I", 0x7FFFFFC0)).ljust(157, b"\1")


def png():
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 64, 64, 8, 6, 0, 0, 0)
        + np.random.default_rng(7).bytes(2000)
    )


def webm_bomb():
    return container_of(Clip(np.zeros(600 * 8000, np.float32), 8000), "webm", "libopus", 8000)


def many_channels():
    return (
        b"RIFF"
        + struct.pack("<I", 1036)
        + b"WAVEfmt "
        + struct.pack("<IHHIIHHxxxx", 16, 1, 1000, RATE, RATE * 2000, 2000, 16)[:20]
        + b"data"
        + struct.pack("<I", 1000)
        + bytes(1000)
    )


REFUSED = {
    "0.2 s": (lambda: file_of(voice_like(2.0).samples[10000:14800], 24000), BadInput, "too_short"),
    "0 bytes": (lambda: b"", BadInput, "bad_audio"),
    "1 byte": (lambda: b"R", BadInput, "bad_audio"),
    "10 minutes": (
        lambda: file_of(np.zeros(600 * 8000, np.int16), 8000, kind="PCM_U8"),
        TooLarge,
        "too_large",
    ),
    "61 s": (lambda: file_of(np.zeros(61 * 8000, np.int16), 8000), TooLarge, "too_large"),
    "silence": (lambda: file_of(np.zeros(5 * RATE), RATE), BadInput, "silent"),
    "noise": (
        lambda: file_of(0.2 * np.random.default_rng(0).standard_normal(5 * RATE), RATE),
        BadInput,
        "silent",
    ),
    "PNG named .wav": (png, BadInput, "bad_audio"),
    "157-byte WAV that lies": (lying_wav, BadInput, "bad_audio"),
    "WAV of a thousand channels": (many_channels, BadInput, "bad_audio"),
    "Opus bomb": (lambda: bomb("OGG", "OPUS", 8000, 0.1), TooLarge, "too_large"),
    "FLAC bomb": (lambda: bomb("FLAC", "PCM_16", 48000, 1), TooLarge, "too_large"),
    "webm bomb": (webm_bomb, TooLarge, "too_large"),
    "11 MiB": (lambda: file_of(voice_like(2.0)).ljust(11 * 2**20, b"\0"), TooLarge, "too_large"),
    "torn ogg": (lambda: b"OggS" + np.random.default_rng(7).bytes(5000), BadInput, "bad_audio"),
    "torn flac": (lambda: b"fLaC" + np.random.default_rng(7).bytes(5000), BadInput, "bad_audio"),
    "torn mp3": (lambda: b"ID3\4\0\0\0\0\0\0" + bytes(range(100)) * 40, BadInput, "bad_audio"),
    "torn webm": (
        lambda: b"\x1aE\xdf\xa3" + np.random.default_rng(7).bytes(5000),
        BadInput,
        "bad_audio",
    ),
    "torn mp4": (
        lambda: b"\0\0\0\x20ftypisom" + np.random.default_rng(7).bytes(5000),
        BadInput,
        "bad_audio",
    ),
    "video without sound": (
        lambda: b"\0\0\0\x10ftypisom\0\0\0\0\0\0\0\x08moov",
        BadInput,
        "bad_audio",
    ),
}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    close_decoder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # also the workers'
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = threading.active_count()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    yield
    assert decoder_children() <= 1
    close_decoder()
    assert decoder_children() == 0
    assert os.listdir(tmp_path) == []
    assert threading.active_count() <= threads
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_in_both_languages(name):
    make, kind, code = REFUSED[name]
    with pytest.raises(kind) as e:
        inspect(decode(make()))
    error = e.value
    assert error.code == code
    assert (
        error.en.endswith(".")
        and error.zh.endswith("。")
        and any("\u4e00" <= c <= "\u9fff" for c in error.zh)
    )


def test_bombs_really_are_small():
    assert len(bomb("FLAC", "PCM_16", 48000, 1)) < 2**20


def test_one_bad_file_leaves_the_next_one_well():
    good = file_of(voice_like(2.0))
    for make in (png, lying_wav):
        with pytest.raises(KaikouError):
            decode(make())
        assert abs(decode(good).duration_s - 2.0) < 0.01


@pytest.mark.parametrize("seed", range(8))
def test_damaged_files_end_in_a_named_error_or_in_sound(seed):
    rng = np.random.default_rng(seed)
    kinds = [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS")]
    data = bytearray(file_of(voice_like(1.0), None, *kinds[seed % 4]))
    for at in rng.integers(0, len(data), 40):
        data[at] = rng.integers(256)
    try:
        clip = decode(bytes(data))
    except KaikouError as e:
        assert e.code in ("bad_audio", "too_large")
    else:
        assert np.isfinite(clip.samples).all() and np.abs(clip.samples).max() <= 1


def test_a_worker_that_does_not_answer_is_ended():
    child = WorkerProcess("read", memory_bytes=2**31, cpu_s=5)
    with pytest.raises(WorkerLost) as e:
        # a request that promises more bytes than it sends leaves the worker waiting for ever
        child._process.stdin.write(pack({"kind": "wav", "numbers": [60]}, bytes(1 << 20))[0])
        child.ask("wav", (60.0,), b"", within_s=0.5)
    assert e.value.late
    child.end()
    assert not child.alive


def test_a_worker_has_no_room_for_more_than_its_memory():
    child = WorkerProcess("read", memory_bytes=2**20, cpu_s=5)
    try:
        state = child.ask(
            "wav", (60.0,), file_of(np.zeros((400_000, 4), np.int16), RATE), within_s=20
        )[0]
    except WorkerLost:
        state = None  # numpy may end the process where a plain MemoryError would do
    finally:
        child.end()
    assert state in (None, TOO_LARGE)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at /proc")
def test_a_worker_ends_with_the_studio():
    code = (
        "from webui.audio.decoder import _readers, warm_decoder; import os; warm_decoder();"
        " print(_readers._standby._process.pid, flush=True); os._exit(9)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid = int(out.stdout)
    ended = threading.Event()
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            ended.set()
            break
        with open(f"/proc/{pid}/stat") as f:
            if f.read().split(")")[1].split()[0] == "Z":  # ended; its new parent has not looked yet
                ended.set()
                break
        ended.wait(0.05)
    assert ended.is_set()
