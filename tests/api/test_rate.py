"""An engine of another rate than most: bare samples come at 24 kHz whoever speaks, files and the
façade of that engine's own program say which they have.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import wave
from dataclasses import replace

import httpx
import numpy as np
import pytest

from tests.engine.fake import FakeEngine
from webui import api
from webui.settings import Paths, Settings
from webui.studio import Studio

ENGINE_HZ = 22_050
ASK = {"input": "Hello there.", "voice": "alloy", "seed": 3}


class OtherRate(FakeEngine):
    def describe(self):
        return replace(super().describe(), sample_rate=ENGINE_HZ)


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    """Answers to POSTs, by the app itself."""
    settings = Settings(paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("data")))
    studio = Studio(settings)
    studio.start(OtherRate)
    studio.starting.join()
    app, _ = api.build_app(studio, settings)

    async def post(path: str, **how) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
        ) as http:
            return await http.post(path, **how)

    yield lambda path, **how: asyncio.run(post(path, **how))
    studio.close()


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2").astype(np.float32)


def test_bare_samples_are_of_24_khz_and_everything_else_says_its_rate(post):
    with wave.open(
        io.BytesIO(post("/v1/audio/speech", json={**ASK, "stream": False}).content)
    ) as file:
        assert file.getframerate() == ENGINE_HZ
        own = file.readframes(file.getnframes())
    answers = [
        post("/v1/audio/speech", json={**ASK, "response_format": "pcm", "stream": is_streamed})
        for is_streamed in (True, False)
    ]
    assert [a.headers["x-audio-format"] for a in answers] == [
        "s16le;rate=24000;channels=1"
    ] * 2 and answers[0].content == answers[1].content
    assert abs(len(answers[0].content) / 2 - len(own) / 2 * 24_000 / ENGINE_HZ) <= 1, (
        "as long as it was"
    )
    loud = [
        np.abs(np.fft.rfft(samples(x)[: hz // 2])).argmax()
        for x, hz in ((own, ENGINE_HZ), (answers[0].content, 24_000))
    ]
    assert abs(loud[0] - loud[1]) <= 1, "as high as it was"
    events = [
        json.loads(line[6:])
        for line in post(
            "/v1/audio/speech", json={**ASK, "response_format": "pcm", "stream_format": "sse"}
        ).text.splitlines()
        if line.startswith("data: ")
    ]
    assert b"".join(base64.b64decode(e["audio"]) for e in events[:-1]) == answers[0].content
    response = post("/inference_sft", data={"tts_text": ASK["input"], "spk_id": "alloy"})
    assert response.headers["x-audio-format"] == f"s16le;rate={ENGINE_HZ};channels=1" and len(
        response.content
    ) == len(own)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("wav", "s16le;rate=22050"),
        ("mp3", "mp3;rate=22050"),
        ("aac", "aac;rate=22050"),
        ("flac", "flac;rate=22050"),
        ("opus", "opus;rate=24000"),
    ],
)
def test_the_header_says_the_rate_that_is_in_the_file(post, kind, expected):
    """Opus knows no 22,050 Hz."""
    for is_streamed in (True, False):
        answer = post(
            "/v1/audio/speech", json={**ASK, "response_format": kind, "stream": is_streamed}
        )
        assert answer.headers["x-audio-format"] == expected + ";channels=1"
        if kind == "opus":
            assert struct.unpack_from(
                "<I", answer.content, answer.content.index(b"OpusHead") + 12
            ) == (24_000,)


def test_so_does_the_facade_whose_files_are_coded(post):
    answer = post(
        "/tts", json={"text": ASK["input"], "ref_audio_path": "alloy", "media_type": "ogg"}
    )
    assert answer.headers["x-audio-format"] == "opus;rate=24000;channels=1"
