"""The built-in voice through the real server: the same sound whatever ran before or beside, at
once, without torch.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.api.client import Socket
from tests.serve import running

TEXT = {"input": "清晨的风从窗口吹进来。Then he said hello, and it was 3:30.", "seed": 41}


@pytest.fixture(scope="module")
def builtin_studio():
    with running(engine="builtin", env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        yield studio


def test_request_1_is_request_50_alone_and_beside_seven_others(builtin_studio):
    sock = Socket(builtin_studio)
    first = bytes(sock.say(TEXT).pcm)
    assert len(first) > 3 * 48000
    for n in range(48):
        sock.say(
            {
                "input": f"别的，{n}。Else {n}.",
                "seed": n,
                "voice": ("starter-en-low", "starter-zh-breathy")[n % 2],
            }
        )
    assert bytes(sock.say(TEXT).pcm) == first
    sockets = [Socket(builtin_studio) for _ in range(7)]
    seqs = [
        o.start(
            {
                "input": f"大家一起说，第{n}位，一直说下去。And on, and on, number {n}." * 3,
                "seed": n,
            }
        )
        for n, o in enumerate(sockets)
    ]
    assert bytes(sock.say(TEXT).pcm) == first
    for o, s in zip(sockets, seqs):
        assert o.hear(s).of("end")
        o.close()
    assert not builtin_studio.state()["torch"], "the built-in path must not load torch"
    sock.close()


def test_it_speaks_at_once_without_silence_in_front(builtin_studio):
    sock = Socket(builtin_studio)
    reply = sock.say(TEXT)
    x = np.frombuffer(bytes(reply.pcm), "<i2") / 32768
    assert np.flatnonzero(np.abs(x) > 0.01)[0] < 0.05 * 24000
    assert np.abs(x).max() <= 1.0 and np.sqrt((x**2).mean()) > 0.01
    sock.close()


@pytest.mark.parametrize(
    "text",
    [
        "Hello.",
        "你好。",
        "こんにちは。",
        "안녕하세요.",
        "Привет.",
        "Hello 你好 123",
        "a",
        "！a！",
        "[[h@l'oU]]",
        "ㄅㄆㄇ",
        "x" * 4000,
        "字" * 1000,
    ],
)
def test_every_script_ends_in_sound(builtin_studio, text):
    sock = Socket(builtin_studio)
    reply = sock.hear(sock.start({"input": text, "seed": 1}), timeout=60)
    assert reply.of("end") and len(reply.pcm) > 0.05 * 48000, reply.messages[-1]
    sock.close()


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_speed_changes_length_and_not_the_sentence_count(builtin_studio, speed):
    sock = Socket(builtin_studio)
    plain, fast = (sock.say({**TEXT, "speed": s}) for s in (1.0, speed))
    ratio = len(plain.pcm) / len(fast.pcm)
    assert 0.7 * speed < ratio < 1.4 * speed
    assert len(plain.of("begin")[0]["sentences"]) == len(fast.of("begin")[0]["sentences"])
    sock.close()
