"""The big engine in the real studio, on a small random model directory: takes over by itself, every
mode, and what happens when it cannot.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.make_small_model import make
from tests.api.client import Socket
from tests.api.test_http import clip
from tests.serve import ROOT, free_port, running

TEXT = {"input": "你好，今天天气真好。我们去公园吧。", "seed": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("models")
    make(root / "CosyVoice2-0.5B")
    return root


def wait_for(http, condition, limit_s: float = 120.0) -> dict:
    end = time.monotonic() + limit_s
    while not condition(health := http.get("/tts/health").json()) and time.monotonic() < end:
        time.sleep(0.2)
    return health


def test_the_built_in_voice_speaks_until_the_model_takes_over(models):
    with running("--model-dir", str(models), engine="auto") as studio, studio.client() as http:
        sock = Socket(studio, http)
        first = sock.say(TEXT)
        assert first.of("begin")[0]["engine"] in ("builtin", "cosyvoice2") and first.of("end")
        health = wait_for(http, lambda s: s.get("engine") == "cosyvoice2")
        assert (
            health["engine"] == "cosyvoice2"
            and health["state"] == "ready"
            and "convert" in health["modes"]
            and "[laughter]" in health["tags"]
            and not health["basic"]
        )
        voices = http.get("/v1/audio/voices").json()["data"]
        preset = next(v["id"] for v in voices if v["id"].startswith("preset-"))
        sound = {}
        for mode, more in {
            "zero_shot": {},
            "cross_lingual": {},
            "instruct": {"instructions": "用四川话说"},
            "preset": {"voice": preset},
        }.items():
            reply = sock.say({**TEXT, "mode": mode, **more})
            assert reply.of("end"), reply.messages
            assert reply.of("begin")[0]["engine"] == "cosyvoice2"
            trace = reply.of("end")[0]["trace"]
            assert (
                trace["first"].keys() & trace["whole"].keys()
                >= {"prefill", "tokens", "flow", "vocoder"}
                and "espeak" not in trace["whole"]
                and "other" not in trace["whole"]
            )
            sound[mode] = bytes(reply.pcm)
            assert bytes(sock.say({**TEXT, "mode": mode, **more}).pcm) == sound[mode], (
                "request 2 is request 1"
            )
        assert len(set(sound.values())) == 4
        health = http.post("/v1/text/prepare", json={"text": TEXT["input"]}).json()
        assert [s["text"] for s in health["segments"]] == [TEXT["input"]], "one call of its model"
        short = sock.say({**TEXT, "input": "好", "mode": "zero_shot"})
        assert short.of("begin")[0]["sentences"] == ["好。"] and "cross-lingual" in str(
            short.of("begin")[0]["notes"]
        )
        saved = http.post(
            "/v1/audio/voices",
            files={"audio_sample": clip(4)},
            data={"name": "Lin", "consent": "me"},
        ).json()
        assert sock.say({**TEXT, "voice": saved["id"]}).of("end")
        assert not studio.state()["torch"], "the model's process loads torch, the page's never does"
        sock.close()


def test_a_model_that_cannot_be_used_leaves_the_built_in_voice_and_says_so(tmp_path):
    root = make(tmp_path / "CosyVoice2-0.5B")
    (root / "flow.pt").write_bytes((root / "flow.pt").read_bytes()[:5000])
    with running("--model-dir", str(tmp_path), engine="auto") as studio, studio.client() as http:
        health = wait_for(http, lambda s: "failure" in s)
        assert (
            health["engine"] == "builtin"
            and "flow.pt" in health["failure"]
            and "flow.pt" in health["failure_zh"]
        )
        sock = Socket(studio, http)
        assert sock.say(TEXT).of("end")
        sock.close()


def test_asked_for_by_name_it_is_that_engine_or_none(tmp_path):
    argv = [
        sys.executable,
        "-m",
        "webui",
        "--engine",
        "cosyvoice2",
        "--model-dir",
        str(tmp_path),
        "--port",
        str(free_port()),
        "--data-dir",
        str(tmp_path / "d"),
    ]
    process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (
        process.returncode == 2
        and "CosyVoice2" in process.stderr
        and "模型" in process.stderr
        and "Traceback" not in process.stderr
    )


def test_conversion_speaks_the_source_in_the_other_voice(studio):
    """With the tone engine: the route, not the sound."""
    with studio.client() as http:
        sock = Socket(studio, http)
        assert (
            sock.say({"input": "", "mode": "convert", "source": "draft-none"}).of("error")[0][
                "code"
            ]
            == "voice_gone"
        )
        sock.close()
