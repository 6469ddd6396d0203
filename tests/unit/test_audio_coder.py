"""Files made while the sound is: each read again by another library, equal in length and content;
nothing stays when a request ends.
"""

import io
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from tests.conftest import ROOT
from webui.audio import CODED, Encoder, close_coder, coded_hz, coder_children, coders_open
from webui.audio import encoder as room
from webui.audio.wav import from_s16, to_s16
from webui.errors import KaikouError

RATE = 24000
DELAY = {
    "mp3": 1105,
    "aac": 1024,
    "opus": 0,
    "flac": 0,
}  # samples of silence that the format itself puts first, and cannot tell of in a stream
FRAME = {"mp3": 1152, "aac": 1024, "opus": 0, "flac": 0}


class Flowing(soundfile.SoundFile):
    """As from a pipe: a length that is unknown is not looked for."""

    def seekable(self):
        return False


def read(kind, data):
    """(float32 (n,), rate) by libsndfile, which shares no codec with the encoder; AAC it cannot
    read, so that one is read by FFmpeg again.
    """
    if kind == "aac":
        import av

        with av.open(io.BytesIO(data), format="aac") as file:
            frames = [f.to_ndarray()[0] for f in file.decode(audio=0)]
            return np.concatenate(frames), file.streams.audio[0].rate
    with Flowing(io.BytesIO(data)) as file:
        blocks = []
        while len(block := file.read(8192, dtype="float32")):
            blocks.append(block)
        return np.concatenate(blocks), file.samplerate


def gliding(seconds=2.0, rate=RATE):
    """A tone that rises: no two places in it are alike, so a piece that is missing or doubled
    shows.
    """
    t = np.arange(int(seconds * rate)) / rate
    return to_s16(
        (
            0.3
            * np.sin(2 * np.pi * (150 * t + 250 * t * t))
            * np.minimum(1, 20 * np.minimum(t, t[-1] - t))
        ).astype(np.float32)
    )


def same(kind, decoded, pcm, is_whole=False):
    """Length, likeness and level of what was decoded, against the samples that went in."""
    expected, delay = from_s16(pcm), 0 if is_whole and kind == "mp3" else DELAY[kind]
    assert (
        0
        <= len(decoded) - delay - len(expected)
        <= (0 if is_whole and kind == "mp3" else FRAME[kind])
    )
    actual = decoded[delay : delay + len(expected)]
    if kind == "flac":
        assert np.array_equal(to_s16(actual), pcm)
    assert np.corrcoef(actual, expected)[0, 1] > 0.98
    assert abs(20 * np.log10(np.sqrt(np.mean(actual**2) / np.mean(expected**2)))) < 0.7


def coded(kind, pcm, piece=1920, rate=RATE, **how):
    coder = Encoder(kind, rate, **how)
    parts = [coder.push(pcm[at : at + piece]) for at in range(0, len(pcm), piece)]
    return [*parts, coder.finish()]


@pytest.fixture(autouse=True)
def nothing_open():
    yield
    assert coders_open() == 0 and coder_children() <= 1


@pytest.fixture(scope="module", autouse=True)
def nothing_left():
    yield
    close_coder()
    assert coder_children() == 0


@pytest.mark.parametrize("kind", CODED)
def test_what_is_coded_piece_by_piece_is_the_whole_sound(kind):
    pcm = gliding()
    decoded, rate = read(kind, b"".join(coded(kind, pcm)))
    assert rate == RATE
    same(kind, decoded, pcm)


@pytest.mark.parametrize("kind", CODED)
def test_a_whole_file_knows_its_length(kind):
    pcm = gliding(1.0)
    parts = coded(kind, pcm, is_whole=True)
    assert not any(parts[:-1])
    same(kind, read(kind, parts[-1])[0], pcm, is_whole=True)
    if kind in ("mp3", "flac"):
        assert soundfile.info(io.BytesIO(parts[-1])).frames == RATE


@pytest.mark.parametrize("kind", CODED)
def test_it_leaves_while_it_is_made(kind):
    """Counted in sound, not in time: a tenth of a second goes in, and its first frame is out."""
    coder = Encoder(kind, RATE)
    pcm = gliding(1.0)
    assert coder.push(pcm[: 2 * RATE // 8])
    sent = sum(len(coder.push(pcm[at : at + 4800])) > 0 for at in range(6000, 2 * RATE, 4800))
    assert sent >= 7
    coder.close()


def crossings(sound):
    """How often a tone changes sides, told from where it is loud."""
    return int((np.diff(np.signbit(sound[np.abs(sound) > 0.05])) != 0).sum())


@pytest.mark.parametrize(
    ("kind", "rate", "hz"),
    [
        ("opus", 22050, 24000),
        ("opus", 24000, 24000),
        ("opus", 96000, 48000),
        ("mp3", 22050, 22050),
        ("aac", 23000, 24000),
        ("flac", 23000, 23000),
        ("flac", 4000, 8000),
    ],
)
def test_the_rate_of_a_file_is_known_before_it_is_made(kind, rate, hz):
    assert coded_hz(kind, rate) == hz


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("rate", [22050, 48000])
def test_other_rates_keep_pitch_and_length(kind, rate):
    pcm = gliding(0.5, rate)
    decoded, rate_hz = read(kind, b"".join(coded(kind, pcm, rate=rate)))
    assert rate_hz >= rate and rate_hz == coded_hz(kind, rate)
    assert abs(crossings(decoded) - crossings(from_s16(pcm))) <= 4
    assert -0.002 < len(decoded) / rate_hz - 0.5 < 0.1


def test_the_pieces_may_be_cut_anywhere():
    """Some frames of each, and one frame and a bit sample by sample: every push is a question to
    another process.
    """
    pcm = gliding(0.2)
    for piece, cut in ((2, pcm[:2880]), (14, pcm), (5000, pcm), (1 << 20, pcm)):
        for kind in ("mp3", "flac"):
            assert b"".join(coded(kind, cut, piece)) == b"".join(coded(kind, cut)), (kind, piece)


def test_no_sound_at_all_is_an_empty_file_not_a_fault():
    for kind in CODED:
        for is_whole in (False, True):
            assert isinstance(b"".join(coded(kind, b"", is_whole=is_whole)), bytes)


def test_side_by_side_none_hears_another():
    sounds = {kind: gliding(0.5 + n / 4) for n, kind in enumerate(CODED)}
    coders, out = {kind: Encoder(kind, RATE) for kind in sounds}, dict.fromkeys(sounds, b"")
    assert coders_open() == 4
    for at in range(0, max(map(len, sounds.values())), 960):
        for kind, pcm in sounds.items():
            out[kind] += coders[kind].push(pcm[at : at + 960])
    for kind, pcm in sounds.items():
        same(kind, read(kind, out[kind] + coders[kind].finish())[0], pcm)


def test_what_is_given_up_leaves_nothing():
    for _ in range(25):
        for kind in CODED:
            coder = Encoder(kind, RATE, "label")
            coder.push(gliding(0.1))
            coder.close()
            coder.close()
            with pytest.raises(KaikouError):
                coder.push(b"\0\0")
    Encoder("mp3", RATE).close()
    assert coders_open() == 0


def test_the_label_is_in_the_file():
    for kind in ("mp3", "opus", "flac"):
        assert b"AI-generated" in b"".join(coded(kind, gliding(0.2), label="AI-generated speech"))


def test_a_process_that_dies_takes_only_what_was_under_way():
    coder = Encoder("opus", RATE)
    os.kill(room._codecs._child._process.pid, signal.SIGKILL)
    with pytest.raises(KaikouError) as exc_info:
        [coder.push(gliding(0.1)) for _ in range(3)]
    assert (
        exc_info.value.code == "encode"
        and exc_info.value.en.endswith(".")
        and exc_info.value.zh.endswith("。")
    )
    coder.close()
    pcm = gliding(0.3)
    same("opus", read("opus", b"".join(coded("opus", pcm)))[0], pcm)


def test_the_studio_itself_never_loads_the_codecs():
    """Their libraries are GPL as a whole: they stay in processes of their own (NOTICE)."""
    code = (
        "import sys, webui.app; from webui.audio import Encoder; c = Encoder('mp3', 24000);"
        " c.push(bytes(9600)); c.finish(); print([m for m in sys.modules if m.split('.')[0] =="
        " 'av'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().splitlines()[-1] == "[]"


def test_without_the_library_the_answer_is_a_sentence(monkeypatch):
    close_coder()
    monkeypatch.setattr(
        room, "MEMORY_BYTES", 1 << 20
    )  # as good as not there: the process cannot even start
    with pytest.raises(KaikouError) as exc_info:
        Encoder("mp3", RATE)
    assert exc_info.value.code == "encode"
