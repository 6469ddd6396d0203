"""The client over gRPC: what it hears, raises and closes is what it does over HTTP."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import socket
import subprocess
import sys
import wave

import grpc
import pytest

from tests.api import rpc
from tests.api.test_http import clip
from tests.api.test_stream import idle, settle
from tests.conftest import ROOT
from tests.serve import free_port, running
from webui.client import TTS, AsyncTTS, Retry
from webui.client.errors import Broken, Unreachable
from webui.client.grpc_link import error_of
from webui.errors import BadInput, Busy, EngineFault, LoginNeeded, NotAllowed, NotFound, TooLarge

TEXT, VOICE = rpc.TEXT, rpc.VOICE
QUICK = Retry(tries=2, first_s=0.01, longest_s=0.03, patience_s=5)
LONG = "seconds=600 rtf=0.3"


@pytest.fixture(scope="module")
def served():
    with rpc.rpc_running(env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as served:
        yield served


@pytest.fixture
def tts(served):
    with TTS(f"grpc://{served.address}", retry=QUICK) as client:
        yield client


def test_one_sound_whichever_way(served, tts, tmp_path):
    with TTS(served.studio.url) as http:
        expected = http.synthesize(TEXT, VOICE, seed=5, speed=1.25)
    first = queue.SimpleQueue()
    sound = tts.synthesize(TEXT, VOICE, seed=5, speed=1.25)
    paced = tts.synthesize(TEXT, VOICE, seed=5, speed=1.25, on_first_audio=first.put)
    assert sound.pcm == paced.pcm == expected.pcm
    assert expected.pcm.startswith(first.get(timeout=5)) and first.empty()
    for name in ("rate", "seed", "voice", "engine"):
        assert getattr(sound, name) == getattr(expected, name)
    assert sound.job.startswith("take-")
    assert sound.wav() == expected.wav(), "with its label"
    with wave.open(str(sound.save(tmp_path / "a.wav"))) as w:
        assert w.readframes(1 << 24) == expected.pcm
    with tts.stream(TEXT, VOICE, seed=5, speed=1.25) as stream:
        pieces = list(stream)
        assert b"".join(pieces) == expected.pcm and len(pieces) > 1
        assert (stream.rate, stream.seed) == (24000, 5)
    random_seed = tts.synthesize(TEXT, VOICE)
    assert random_seed.pcm == tts.synthesize(TEXT, VOICE, seed=random_seed.seed).pcm


def test_the_library(served, tts, tmp_path):
    with TTS(served.studio.url) as http:
        names = {v["id"]: v["name"] for v in http.voices()}
        assert {v["id"]: v["name"] for v in tts.voices()} == names
    path = tmp_path / "a.wav"
    path.write_bytes(clip())
    with pytest.raises(NotAllowed):
        tts.clone(path, "Lin Wan")
    voice = tts.clone(path, "Lin Wan", consent="Lin Wan agreed", denoise=True, start_s=0, end_s=2)
    assert voice["report"]["sample_rate_hz"] and voice["used"]["end_s"] == 2
    assert voice["id"] in {v["id"] for v in tts.voices()}
    assert tts.synthesize(TEXT, voice["id"], seed=1).pcm


@pytest.mark.parametrize(
    ("params", "kind", "code"),
    [
        ({"voice": "nobody"}, NotFound, "voice_gone"),
        ({"text": ""}, BadInput, "no_text"),
        ({"speed": 9.0}, BadInput, "bad_speed"),
        ({"instructions": "seconds=5 fail=3"}, EngineFault, "fault"),
    ],
)
@pytest.mark.parametrize("way", ["synthesize", "stream"])
def test_refusals_are_named_and_in_both_languages(tts, way, params, kind, code):
    with pytest.raises(kind) as caught:
        list(getattr(tts, way)(**{"text": TEXT, "voice": VOICE, **params}) or [])
    assert caught.value.code == code
    assert any("\u4e00" <= c <= "\u9fff" for c in caught.value.zh) and caught.value.en.isascii()


def test_the_asynchronous_twin(served):
    async def run() -> None:
        address = f"grpc://{served.address}"
        first = queue.SimpleQueue()
        async with AsyncTTS(address, retry=QUICK) as tts:
            sounds = await asyncio.gather(
                *(tts.synthesize(TEXT, VOICE, seed=5, on_first_audio=first.put) for _ in range(4))
            )
            whole = await tts.synthesize(TEXT, VOICE, seed=5)
            assert {s.pcm for s in sounds} == {whole.pcm} and len(whole.pcm) > 100_000
            assert all(whole.pcm.startswith(first.get(timeout=5)) for _ in range(4))
            stream = tts.stream(TEXT, VOICE, seed=5)
            assert b"".join([pcm async for pcm in stream]) == whole.pcm
            assert await tts.voices()
            with pytest.raises(NotFound):
                await tts.synthesize(TEXT, "nobody")
            await tts.close()
        await AsyncTTS(address).close()  # never used

    asyncio.run(run())


def test_the_key_goes_along():
    with rpc.rpc_running(env={"KAIKOU_API_KEY": "kk_x"}) as served:
        address = f"grpc://{served.address}"
        with TTS(address, "kk_x") as tts:
            assert tts.voices()
        with TTS(address) as tts, pytest.raises(LoginNeeded):
            tts.voices()


def test_it_leaves_a_dead_and_goes_on_with_http_and_grpc(served):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        dead = f"grpc://127.0.0.1:{s.getsockname()[1]}"
        addresses = [dead, f"grpc://{served.address}", served.studio.url]
        with TTS(addresses, retry=QUICK) as tts:
            sounds = {tts.synthesize(TEXT, VOICE, seed=5).pcm for _ in range(6)}
        assert len(sounds) == 1
        away = Retry(patience_s=0.05, first_s=0.01)
        with TTS(dead, retry=away) as tts, pytest.raises(Unreachable):
            tts.voices()


def test_a_studio_that_dies_in_mid_stream_is_told():
    with rpc.rpc_running() as served, TTS(f"grpc://{served.address}", retry=QUICK) as tts:
        stream = tts.stream(TEXT, VOICE, instructions=LONG)
        next(stream)
        served.studio.process.kill()
        with pytest.raises((Broken, Unreachable)):
            list(stream)


class Failure(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str, *trailers):
        self.code, self.details, self.trailing_metadata = (
            lambda: code,
            lambda: details,
            lambda: trailers,
        )


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses"), Unreachable),
        (Failure(grpc.StatusCode.UNAVAILABLE, "Socket closed"), Broken),
        (Failure(grpc.StatusCode.DEADLINE_EXCEEDED, ""), Unreachable),
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max"), TooLarge),
        (Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!"), Busy),
        (Failure(grpc.StatusCode.UNAUTHENTICATED, "no"), LoginNeeded),
        (Failure(grpc.StatusCode.INTERNAL, "x", ("kaikou-error-bin", b"not json")), Broken),
        (Failure(grpc.StatusCode.INTERNAL, "x", ("kaikou-error-bin", b"[1]")), Broken),
    ],
)
def test_what_is_not_the_studios_own_error_has_a_name_too(failure, kind):
    assert type(error_of(failure)) is kind


def test_a_forgotten_stream_ends_its_job_and_a_forgotten_client_its_connection(served):
    tts = TTS(f"grpc://{served.address}")
    stream = tts.stream(TEXT, VOICE, instructions=LONG)
    next(stream)
    assert settle(served.studio, lambda s: s["open"])["open"] == 1
    circle = [stream, tts]
    circle.append(circle)
    del stream, tts, circle
    gc.collect()
    after = settle(served.studio, idle)
    assert idle(after) and after["opened"] == after["finalised"]


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_forgotten_stream_ends_its_job(served, scheme):
    address = served.studio.url if scheme == "http" else f"grpc://{served.address}"
    with TTS(address) as tts:
        for pcm in tts.stream(TEXT, VOICE, instructions=LONG):  # only the loop holds it
            assert pcm
            break
        assert idle(settle(served.studio, idle))

    async def run() -> None:
        async with AsyncTTS(address) as tts:
            stream = tts.stream(TEXT, VOICE, instructions=LONG)
            assert await anext(stream)
            del stream
            gc.collect()
            assert idle(await asyncio.to_thread(settle, served.studio, idle))

    asyncio.run(run())


def test_over_tls_it_trusts_what_grpc_trusts(tmp_path):
    chain, private = rpc.certificate(tmp_path)
    port = free_port()
    tls = ("--grpc-cert", str(chain), "--grpc-key", str(private))
    code = f"""from webui.client import TTS
print(len(TTS("grpcs://localhost:{port}").synthesize("hello", "{VOICE}", seed=1).pcm))"""
    with running("--grpc-port", str(port), *tls):
        env = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(chain)}
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env=env
        )
    assert int(run.stdout) > 1000, run.stderr


def test_without_its_packages_it_says_what_to_install(monkeypatch):
    for name in ("webui.client.grpc_link", "grpc"):
        monkeypatch.setitem(sys.modules, name, None)
    for kind in (TTS, AsyncTTS):
        with pytest.raises(BadInput, match="pip install grpcio"):
            kind("grpc://127.0.0.1:1")
