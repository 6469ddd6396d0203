"""The wire between the studio and an engine's process: what goes in comes out, and nothing else is
ever taken for a frame.
"""

from __future__ import annotations

import socket
import struct
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webui.engine.remote.framing import (
    MAGIC,
    MAX_BODY,
    MAX_WORDS,
    Damaged,
    Ended,
    pack,
    receive,
    send,
)
from webui.engine.remote.protocol import chunk_of, record_of, words_of, words_of_chunk
from webui.errors import TooLarge
from webui.types import Abilities, Chunk, Health, SpeechRequest

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def received(data: bytes):
    """What a reader makes of these bytes followed by the end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()))
        writer.start()
        try:
            return receive(ours)
        finally:
            ours.close()
            writer.join()


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=9), JSON, max_size=4), st.binary(max_size=3000))
def test_what_goes_in_comes_out(words, body):
    assert received(b"".join(pack(words, body))) == (words, body)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | st.tuples(st.just(MAGIC), st.binary(max_size=80)).map(b"".join))
def test_anything_else_is_damage_or_the_end(data):
    with pytest.raises((Damaged, Ended)):
        received(data)


@pytest.mark.parametrize(
    "data",
    [
        b"Loading checkpoint shards",
        struct.pack("<4sII", MAGIC, MAX_WORDS + 1, 0),
        struct.pack("<4sII", MAGIC, 2, MAX_BODY + 1),
        struct.pack("<4sII", MAGIC, 2, 0) + b"[]",
        struct.pack("<4sII", MAGIC, 4, 0) + b"\xff\xfe{}",
        struct.pack("<4sII", b"\x80\x04\x95.", 2, 0) + b"{}",
    ],
)
def test_damage_has_a_name_and_a_sentence(data):
    with pytest.raises(Damaged) as fault:
        received(data)
    assert fault.value.code == "bad_frame" and fault.value.en and fault.value.zh


def test_a_frame_that_is_cut_off_is_the_end():
    whole = b"".join(pack({"a": 1}, b"12345"))
    for n in range(len(whole)):
        with pytest.raises(Ended):
            received(whole[:n])


def test_too_much_is_refused_before_anything_is_sent():
    with pytest.raises(TooLarge):
        pack({}, bytes(MAX_BODY + 1))
    with pytest.raises(TooLarge):
        pack({"a": "x" * MAX_WORDS})


def test_sending_to_nobody_is_the_end():
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(Ended):
        send(ours, {"a": 1}, bytes(1 << 20))


def test_nouns_cross_unchanged():
    for record in (
        SpeechRequest(
            "r",
            "你好 hello",
            "v",
            "instruct",
            "用四川话说",
            "zh",
            1.25,
            2**63 - 1,
            3,
            ("你好", "hello"),
            "said",
        ),
        Abilities("e", "1", 24000, ("zero_shot",), ("zh", "en"), 2, presets=("a",)),
        Health("starting", "Loading", "载入", 0.25),
    ):
        (words, _) = received(b"".join(pack(words_of(record))))
        assert record_of(type(record), words) == record
    samples = np.random.default_rng(0).normal(0, 0.1, 4801).astype(np.float32)
    chunk = Chunk(3, samples, 960, 1, True, {"flow": 0.25})
    back = chunk_of(*received(b"".join(pack(*words_of_chunk(chunk)))))
    assert np.array_equal(back.samples, samples) and back.samples.dtype == np.float32
    assert (back.number, back.start, back.segment, back.last, dict(back.timings)) == (
        3,
        960,
        1,
        True,
        {"flow": 0.25},
    )
