"""The client against a server that misbehaves on a real socket: sound for sound what was asked for,
or a named error.
"""

from __future__ import annotations

import asyncio
import queue
import socket
import subprocess
import sys

import pytest

from tests.client.fire import burning, pcm_of
from tests.conftest import ROOT
from webui.api.middleware.access import error_body
from webui.client import TTS, AsyncTTS, Retry, Unreachable
from webui.client.audio import WavReader
from webui.client.errors import Broken, Changed, ProxyFault, fault_of, retry_after_s
from webui.client.retry import Bucket
from webui.errors import BadInput, Busy, EngineFault, KaikouError, LoginNeeded, NotFound
from webui.messages import Message, message

QUICK = Retry(tries=4, first_s=0.01, longest_s=0.03, patience_s=20)
HEAVY = (
    "gradio",
    "fastapi",
    "starlette",
    "uvicorn",
    "numpy",
    "scipy",
    "torch",
    "soundfile",
    "pydantic",
    "websockets",
    "prometheus_client",
)


@pytest.fixture
def fire():
    with burning() as (url, fire):
        fire.url = url
        yield fire


@pytest.fixture
def tts(fire):
    with TTS(fire.url, "secret", retry=QUICK, timeout_s=0.4) as client:
        yield client


def test_it_needs_nothing_of_the_servers():
    code = f"""import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}: raise ImportError("not here: " + name)
sys.meta_path.insert(0, Gone())
import webui.client, webui.client.__main__
webui.client.TTS("http://127.0.0.1:9").close(); webui.client.AsyncBatchClient("http://127.0.0.1:9")
ours = [m for m in sys.modules if m.startswith("webui.") and not m.startswith("webui.client")]
print(sorted({{m.split(".")[0] for m in sys.modules}} & set({HEAVY!r})), sorted(ours))"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[] ['webui.errors', 'webui.messages']\n"


@pytest.mark.parametrize(
    "words",
    [
        "ok",
        "reset ok",
        "stall ok",
        "half ok",
        "chunk ok",
        "short ok",
        "page ok",
        "noise ok",
        "close ok",
        "old ok",
        "odd ok",
        "empty ok",
        "error error error ok",
        "away full away full away full away full ok",
    ],
)
def test_every_way_of_breaking_ends_with_the_whole_sound(fire, tts, words):
    text = f"{words} good morning"
    sound = tts.synthesize(text, "v", seed=3)
    assert (
        sound.pcm == pcm_of(text, 3)
        and sound.rate == 24000
        and fire.n_asked[text] == len(words.split())
    )
    first = queue.SimpleQueue()
    second = tts.synthesize(f"{text} too", "v", on_first_audio=first.put)
    assert second.pcm == pcm_of(f"{text} too", second.seed)
    assert first.get(timeout=5) and first.empty()
    assert (
        set(fire.keys) == {"Bearer secret"}
        and fire.bodies[0]["voice"] == "v"
        and not fire.bodies[0]["stream"]
        and fire.bodies[-1]["stream"]
    )


@pytest.mark.parametrize("seed", [5, -1])
def test_a_stream_that_breaks_goes_on_where_it_was(fire, tts, seed):
    """Samples were handed on already: each must come once, of the seed that the first answer
    told.
    """
    text = "chunk chunk ok twice broken"
    with tts.stream(text, "v", seed=seed) as stream:
        pieces = list(stream)
    assert (
        b"".join(pieces) == pcm_of(text, stream.seed)
        and stream.rate == 24000
        and fire.n_asked[text] == 3
    )
    assert all(piece and len(piece) % 2 == 0 for piece in pieces)


def test_a_stream_that_comes_back_as_another_sound_is_not_glued_on(fire, tts, monkeypatch):
    import tests.client.fire as server

    real = server.pcm_of
    monkeypatch.setattr(
        server, "pcm_of", lambda text, seed, n=400: real(f"{text} {fire.n_asked[text]}", seed, n)
    )
    chunks = []
    with pytest.raises(Changed):
        chunks.extend(tts.stream("chunk ok unstable", "v", seed=1))
    assert chunks and fire.n_asked["chunk ok unstable"] == 2


@pytest.mark.parametrize(
    ("behaviour", "kind", "tries"),
    [
        ("bad", BadInput, 1),
        ("login", LoginNeeded, 1),
        ("moved", BadInput, 1),
        ("error", EngineFault, 4),
        ("half", Broken, 4),
        ("stall", Unreachable, 4),
    ],
)
def test_what_does_not_pass_is_a_named_error(fire, tts, behaviour, kind, tries):
    with pytest.raises(kind) as caught:
        tts.synthesize(f"{behaviour} x", "v")
    assert fire.n_asked[f"{behaviour} x"] == tries and caught.value.en and caught.value.zh


def test_retry_after_is_kept(fire, tts, monkeypatch):
    slept = []
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)
    tts.synthesize("busy busy full ok x", "v")
    assert len(slept) == 3 and all(s >= 1.0 for s in slept[:2]) and slept[2] < 1.0


def test_a_studio_that_stays_busy_costs_patience_not_tries(fire, monkeypatch):
    slept = []
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)
    with (
        TTS(fire.url, retry=Retry(tries=2, patience_s=8.5, longest_s=0.1)) as tts,
        pytest.raises(Busy) as caught,
    ):
        tts.synthesize("busy x", "v")
    assert 6 <= len(slept) <= 8 and sum(slept) <= 8.5 and caught.value.retry_after_s == 1


def test_nobody_at_the_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with (
        TTS(f"http://127.0.0.1:{port}", retry=Retry(patience_s=0.05, first_s=0.01)) as tts,
        pytest.raises(Unreachable),
    ):
        tts.synthesize("hello", "v")
    with TTS("ftp://example.invalid") as tts, pytest.raises(BadInput):
        tts.synthesize("hello", "v")


def test_a_voice_is_not_made_twice(fire, tts, tmp_path):
    """An upload whose answer is lost may have been done."""
    clip = tmp_path / "a.wav"
    clip.write_bytes(b"RIFF")
    fire._behaviour_of = lambda text: "half"
    with pytest.raises(KaikouError):
        tts.clone(clip, "Lin Wan", consent="me")
    assert len(fire.bodies) == 1
    with pytest.raises(BadInput):
        tts.clone(tmp_path / "none.wav", "x")


def test_stopping_a_stream_ends_the_connection(fire, tts):
    stream = tts.stream("ok long", "v")
    next(stream)
    stream.close()
    assert list(stream) == [] and tts.synthesize("after", "v", seed=1).pcm == pcm_of("after", 1)


def test_the_asynchronous_twin(fire):
    async def run():
        async with AsyncTTS(fire.url, "secret", retry=QUICK, timeout_s=0.4) as tts:
            first = queue.SimpleQueue()
            sounds = await asyncio.gather(
                *(
                    tts.synthesize(f"{w} ok {w}", "v", seed=2, on_first_audio=first.put)
                    for w in ("reset", "half", "chunk", "stall", "away")
                )
            )
            assert [s.pcm for s in sounds] == [
                pcm_of(f"{w} ok {w}", 2) for w in ("reset", "half", "chunk", "stall", "away")
            ] and all(first.get(timeout=5) for _ in range(5))
            stream = tts.stream("chunk ok s", "v")
            assert b"".join([x async for x in stream]) == pcm_of("chunk ok s", stream.seed)
            with pytest.raises(LoginNeeded):
                await tts.synthesize("login x", "v")
            task = asyncio.create_task(tts.synthesize("stall x", "v"))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


# ---- parts ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 5000])
def test_a_wav_is_read_whatever_the_pieces(step):
    from webui.audio import wav_header

    pcm = pcm_of("x", 1, 500)
    for head in (
        wav_header(24000, 500, "made by a machine"),
        wav_header(24000, None, "made by a machine"),
    ):
        reader, out = WavReader(), b""
        data = head + pcm
        for i in range(0, len(data), step):
            out += reader.feed(data[i : i + step])
        reader.end()
        assert out == pcm and reader.rate == 24000 and reader.head == head


def test_a_saved_wav_is_true_and_says_that_it_was_made(tmp_path):
    import wave

    from webui.audio import wav_header
    from webui.client import Sound

    pcm = pcm_of("x", 1, 500)
    path = Sound(pcm, 24000, wav_header(24000, None, "AI-generated")).save(tmp_path / "a.wav")
    with wave.open(str(path)) as w:
        assert w.readframes(1000) == pcm
    assert path.read_bytes() == wav_header(24000, 500, "AI-generated") + pcm and [
        p.name for p in tmp_path.iterdir()
    ] == ["a.wav"]


def test_retry_after_as_number_and_date():
    from datetime import UTC, datetime

    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert [
        retry_after_s({"retry-after": x}, now)
        for x in (
            "7",
            " 0 ",
            "Fri, 02 Jan 2026 03:04:35 GMT",
            "Fri, 02 Jan 2026 03:00:00 GMT",
            "soon",
            "",
            "²",
            "-1",
        )
    ] == [7, 0, 30, 0, None, None, None, None]
    fault = fault_of(
        404, {}, b'{"error": {"message": "gone", "code": "voice_gone", "type": "x", "param": null}}'
    )
    assert isinstance(fault, NotFound) and fault.code == "voice_gone" and fault.en == "gone"
    assert isinstance(fault_of(418, {}, b"<html>"), BadInput) and isinstance(
        fault_of(502, {}, b"null"), EngineFault
    )


def test_an_error_has_its_sentence_in_both_languages():
    error = fault_of(404, {}, error_body(NotFound("voice_gone.deleted"), "zh"))
    assert (error.en, error.zh) == tuple(message("voice_gone.deleted"))
    for odd in (b'"gone"', b'["gone"]', b'{"zh": 5}', b"null"):
        body = b'{"error": {"message": "gone", "sentences": ' + odd + b"}}"
        assert fault_of(404, {}, body).en == "gone"


def test_a_proxys_answer_is_told_from_the_studios():
    assert {fault_of(status, {}, b"").__class__ for status in (502, 504)} == {ProxyFault}
    assert fault_of(500, {}, b"").__class__ is EngineFault


def test_the_bucket_gives_no_more_than_it_has():
    now = [0.0]
    bucket = Bucket(2.0, burst=3, clock=lambda: now[0])
    waits = [bucket.take() for _ in range(7)]
    assert waits == [0, 0, 0, 0.5, 1.0, 1.5, 2.0]
    now[0] = 100.0
    assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0.5]
    bucket.heed(Busy(Message("", ""), retry_after_s=9, code="rate_limited"))
    assert bucket.take() == 9
    bucket.heed(Busy(Message("", ""), retry_after_s=90, code="too_many_streams"))
    now[0] = 110.0
    assert bucket.take() == 0
