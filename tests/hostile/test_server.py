"""What strangers and bad luck do to a running server: bad clips, slow readers, a full disk.

Each a clear sentence; others untouched.
"""

from __future__ import annotations

import io
import json
import socket
import time
import wave

import numpy as np
import pytest

from tests.api.client import Socket
from tests.api.test_http import clip, error
from tests.api.test_stream import TEXT, idle, settle
from tests.serve import running


def wav(samples, rate: int = 16000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as w:
        w.setnchannels(1), w.setsampwidth(2), w.setframerate(rate)
        w.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


LYING = (
    b"RIFF"
    + (2**31).to_bytes(4, "little")
    + b"WAVEfmt "
    + bytes([16, 0, 0, 0, 1, 0, 1, 0])
    + (16000).to_bytes(4, "little")
    + (32000).to_bytes(4, "little")
    + bytes([2, 0, 16, 0])
    + b"data"
    + (2**31 - 100).to_bytes(4, "little")
    + b"\x01\x00" * 56
    + b"\x00"
)
BAD = {
    "empty": (b"", 422),
    "too short": (wav(np.sin(np.arange(3200) / 9) * 0.3), 422),
    "silence": (wav(np.zeros(80000)), 422),
    "a picture": (b"\x89PNG\r\n\x1a\n" + b"\x00" * 400, 422),
    "a lying header": (LYING, 422),
    "text": (b"hello " * 100, 422),
    "ten minutes": (wav(np.random.default_rng(0).normal(0, 0.1, 8000 * 600), 8000), 413),
    "11 MiB": (b"x" * (11 << 20), 413),
}


@pytest.mark.parametrize(
    ("route", "kind"),
    [
        (r, k)
        for r in ("/v1/audio/voices", "/v1/audio/voices/inspect")
        for k in BAD
        if (r[-1], k) != ("t", "too short")
    ],
)
def test_a_bad_clip_gets_a_sentence_and_leaves_nothing(studio, route, kind):
    data, status = BAD[kind]
    with studio.client() as http:
        http.post("/tts/session")
        for language in ("en", "zh"):
            answer = http.post(
                route,
                files={"audio_sample": ("x.wav", data)},
                data={"name": "x", "consent": "me"},
                headers={"Accept-Language": language},
            )
            assert answer.status_code == status, answer.text
            assert any("\u4e00" <= c <= "\u9fff" for c in error(answer)["message"]) == (
                language == "zh"
            )
        assert not [v for v in http.get("/v1/audio/voices").json()["data"] if v["name"] == "x"]
        assert (
            http.post(
                "/v1/audio/speech", json={"input": "Still here.", "voice": "alloy"}
            ).status_code
            == 200
        )


def test_noise_is_reported_as_noisy(studio):
    noise = wav(np.random.default_rng(1).normal(0, 0.1, 16000 * 5))
    with studio.client() as http:
        http.post("/tts/session")
        answer = http.post("/v1/audio/voices/inspect", files={"audio_sample": noise})
        assert answer.status_code == 422 or [
            w for w in answer.json()["warnings"] if w["tone"] == "bad"
        ]


def test_a_reader_of_1_kb_a_second_holds_only_itself_back(studio):
    body = json.dumps(
        {
            **TEXT,
            "voice": "starter-zh-high",
            "instructions": "seconds=600",
            "response_format": "pcm",
        }
    ).encode()
    host, port = studio.url[7:].split(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type:"
            b" application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        message = slow.recv(1024)
        assert message.startswith(b"HTTP/1.1 200")
        for _ in range(3):
            slow.recv(1024)
            time.sleep(0.3)
        sock = Socket(studio)
        assert sock.say(TEXT).of("end")
        sock.close()
        n_streams = [
            float(line.split()[1])
            for line in studio.client().get("/metrics").text.splitlines()
            if line.startswith("cv_streams_open ")
        ]
        assert n_streams == [1.0]
    assert idle(settle(studio, idle))


def test_a_websocket_that_does_not_read_is_held_by_its_credit(studio):
    sock = Socket(studio)
    sock.start({**TEXT, "instructions": "seconds=600"}, credit=24000 * 15)
    time.sleep(1.0)
    other = Socket(studio)
    assert other.say(TEXT).of("end")
    other.close()
    sock.ws.socket.close()
    assert idle(settle(studio, idle))


def test_a_full_disk_fails_the_saving_not_the_speaking():
    with running(max_file_kb=96) as full:
        sock = Socket(full, locale="zh")
        reply = sock.say({**TEXT, "instructions": "seconds=6"})
        end = reply.of("end")[0]
        assert len(reply.pcm) == end["samples"] * 2 == 6 * 48000, "every sample was heard"
        assert end["url"] is None and end["code"] == "storage" and "磁盘" in end["text"]
        short = sock.say({**TEXT, "instructions": "seconds=0.5"}).of("end")[0]
        assert short["url"] and sock.http.get(short["url"]).status_code == 200
        answer = sock.http.post(
            "/v1/audio/voices", files={"audio_sample": clip(8)}, data={"name": "x", "consent": "me"}
        )
        assert answer.status_code == 507 and error(answer)["code"] == "storage"
        assert [
            v for v in sock.http.get("/v1/audio/voices").json()["data"] if not v["starter"]
        ] == []
        hidden_files = [p.name for p in full.data_dir.rglob(".*")]
        assert hidden_files == [], "something half-written was left"
        sock.close()


def test_a_hundred_visitors_do_not_mix_voices(studio):
    """Each visitor's tone carries its seed: what arrives must be the tone that was asked for."""
    import threading

    wrong = []

    def visit(n: int) -> None:
        with studio.client() as http:
            sock = Socket(studio, http)
            pcm = np.frombuffer(
                bytes(sock.say({**TEXT, "instructions": "seconds=0.5", "seed": n % 97}).pcm), "<i2"
            ).astype(float)
            reference = tones[n % 97]
            if len(pcm) != len(reference) or np.abs(pcm - reference).max() > 1:
                wrong.append(n)
            sock.close()

    tones = {}
    first = Socket(studio)
    for n in range(0, 97, 5):
        tones[n] = np.frombuffer(
            bytes(first.say({**TEXT, "instructions": "seconds=0.5", "seed": n}).pcm), "<i2"
        ).astype(float)
    first.close()
    threads = [threading.Thread(target=visit, args=(n,)) for n in list(tones) * 5]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert wrong == [] and len(tones) == 20


def test_looking_at_a_short_clip_says_it_is_too_short(studio):
    with studio.client() as http:
        http.post("/tts/session")
        answer = http.post("/v1/audio/voices/inspect", files={"audio_sample": BAD["too short"][0]})
        assert answer.status_code == 422 or "too_short" in [
            w["code"] for w in answer.json()["warnings"]
        ]
