"""The frames between the studio and its processes: what goes in comes out, nothing else is ever
taken for a frame, and each of the three who speak them ends with an error of its own.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from webui.audio import worker_process as audio_process
from webui.engine.espeak.worker_process import WorkerConnection, WorkerProcess
from webui.engine.remote.child_process import ChildProcess
from webui.errors import EngineFault, EngineStalled, TooLarge
from webui.frames import (
    MAGIC,
    MAX_BODY,
    MAX_HEADER,
    MAX_JOINED,
    Closed,
    Damaged,
    Oversized,
    pack,
    receive,
    send,
)

PROGRAM = "tests.engine.frame_child"
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


def frame(header: bytes, n_header=None, n_body=0, magic=MAGIC) -> bytes:
    return struct.pack("<4sII", magic, n_header or len(header), n_body) + header


# what is no frame -> what is said of it
NONSENSE = {
    "print": (b"Loading checkpoint shards", "no frame begins here"),
    "pickle": (frame(b"{}", magic=b"\x80\x04\x95."), "no frame begins here"),
    "header over its limit": (frame(b"{}", MAX_HEADER + 1), "a frame beyond all bounds"),
    "body over its limit": (frame(b"{}", n_body=(1 << 32) - 1), "a frame beyond all bounds"),
    "no JSON": (frame(b"\xff\xfe{}"), "words that are not JSON"),
    "nested without end": (frame(b"[" * 20_000), "words that are not JSON"),
    "no object": (frame(b"[]"), "words that are no object"),
}
WHOLE = b"".join(pack({"a": 1}, b"12345"))
CUT = {f"{n} bytes": WHOLE[:n] for n in (0, 3, 12, 15, len(WHOLE) - 1)}


def received(data: bytes, carrier: str = "socket", **more):
    """What a reader makes of these bytes followed by the end."""
    if carrier == "pipe":
        near_end, far_end = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb")))
        source, write = near_end, far_end.write
    else:
        near_end, far_end = socket.socketpair()
        source, write = near_end.makefile("rb"), far_end.sendall

    def write_all():
        with far_end:
            try:
                write(data)
            except BrokenPipeError:  # the reader has had enough
                return

    with near_end, source:
        writer = threading.Thread(target=write_all)
        writer.start()
        try:
            return receive(source.read, **more)
        finally:
            source.close(), near_end.close()
            writer.join()


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(max_size=9), JSON, max_size=4),
    st.binary(max_size=3000),
    st.sampled_from(["socket", "pipe"]),
)
def test_what_goes_in_comes_out(header, body, carrier):
    assert received(b"".join(pack(header, body)), carrier) == (header, body)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80) | st.tuples(st.just(MAGIC), st.binary(max_size=80)).map(b"".join))
def test_anything_else_is_damage_or_the_end(data):
    with pytest.raises(Closed):
        received(data)


@pytest.mark.parametrize("carrier", ["socket", "pipe"])
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_damage_with_its_reason(name, carrier):
    data, reason = NONSENSE[name]
    with pytest.raises(Damaged, match=reason):
        received(data, carrier)


@pytest.mark.parametrize("carrier", ["socket", "pipe"])
def test_a_frame_that_is_cut_off_is_the_end_and_no_damage(carrier):
    for n in range(len(WHOLE)):
        with pytest.raises(Closed) as ended:
            received(WHOLE[:n], carrier)
        assert not isinstance(ended.value, Damaged)


def test_a_frame_that_comes_byte_by_byte_is_a_frame_and_frames_do_not_run_together():
    data, sizes = iter(WHOLE * 2), []

    def read(n):
        sizes.append(n)
        return bytes(next(data) for _ in range(n))

    assert [receive(read), receive(read)] == [({"a": 1}, b"12345")] * 2
    assert sum(sizes) == 2 * len(WHOLE), "not one byte of the next frame is asked for"


def test_too_much_is_refused_before_anything_is_sent():
    for header, body in (({}, bytes(MAX_BODY + 1)), ({"a": "x" * MAX_HEADER}, b"")):
        with pytest.raises(Oversized):
            send(lambda part: pytest.fail("something was sent"), header, body)


def test_a_limit_of_ones_own_counts_at_both_ends():
    assert received(b"".join(pack({}, bytes(9), max_body=9)), max_body=9) == ({}, bytes(9))
    with pytest.raises(Oversized):
        pack({}, bytes(9), max_body=8)
    with pytest.raises(Damaged):
        received(b"".join(pack({}, bytes(9))), max_body=8)


def test_a_small_body_goes_with_its_header_and_a_large_one_is_not_copied():
    large = memoryview(np.zeros(MAX_JOINED, np.float32))
    assert len(pack({}, bytes(MAX_JOINED))) == 1
    assert [len(pack({}, large)), pack({}, large)[1].obj is large.obj] == [2, True]


@pytest.mark.parametrize("carrier", ["socket", "pipe"])
def test_sending_to_nobody_is_the_end(carrier):
    near_end, far_end = socket.socketpair() if carrier == "socket" else os.pipe()
    if carrier == "socket":
        far_end.close()
        with near_end, pytest.raises(Closed):
            send(near_end.sendall, {"a": 1}, bytes(1 << 20))
    else:
        os.close(near_end)
        with closing(os.fdopen(far_end, "wb", buffering=0)) as sink, pytest.raises(Closed):
            send(sink.write, {"a": 1}, bytes(1 << 20))


def test_a_socket_that_is_too_slow_is_no_end():
    near_end, far_end = socket.socketpair()
    with near_end, far_end, near_end.makefile("rb") as source:
        near_end.settimeout(0.01)
        far_end.sendall(WHOLE[:-1])
        with pytest.raises(TimeoutError):
            receive(source.read)
        with pytest.raises(TimeoutError):
            send(near_end.sendall, {}, bytes(MAX_BODY))


def test_nothing_but_the_standard_library_is_loaded():
    """The sound worker loads this file: what it imports costs each reading of a clip."""
    code = (
        "import sys; before = set(sys.modules); import webui.frames;"
        " print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    own_modules = set(run.stdout.split()) - set(sys.stdlib_module_names)
    assert own_modules == {"webui"}
    assert "typing" not in run.stdout.split() and "socket" not in run.stdout.split()


# ---- those who speak them ------------------------------------------------------------------------
@pytest.fixture
def answering(monkeypatch):
    """Of each of the studio's processes, the one that gives these bytes for an answer."""

    def prepare(answer: bytes, greeting: bytes = b"", stays: bool = False):
        monkeypatch.setenv("FRAME_ANSWER", answer.hex())
        monkeypatch.setenv("FRAME_GREETING", greeting.hex())
        monkeypatch.setenv("FRAME_STAYS", "1" if stays else "")

    monkeypatch.setattr(audio_process, "WORKER", ROOT / "tests" / "engine" / "frame_child.py")
    return prepare


def of_the_hosted_engine(answering, answer, stays=False):
    """The error of a question whose answer these bytes are."""
    answering(answer, stays=stays)
    life = ChildProcess(PROGRAM, 1.0, lambda words: None)
    try:
        life.ask({"op": "notes"})
    except EngineFault as error:
        return error
    finally:
        life.kill()


def of_the_builtin_voice(answering, answer, stays=False):
    answering(answer, greeting=b"".join(pack({"ready": True})), stays=stays)
    lane = WorkerConnection(process=WorkerProcess(PROGRAM), stall_s=0.2 if stays else 20.0)
    try:
        lane.start()
        lane.ask({"op": "step"}, life=lane.life)
    except (EngineFault, EngineStalled) as error:
        return error
    finally:
        lane.close()


def of_the_sound_worker(answering, answer, stays=False):
    answering(answer, stays=stays)
    child = audio_process.WorkerProcess("read", memory_bytes=1 << 28, cpu_s=5)
    try:
        child.ask("wav", (60.0,), b"", within_s=0.5 if stays else 20.0)
    except audio_process.WorkerLost as error:
        return error
    finally:
        child.end()


USERS = [of_the_hosted_engine, of_the_builtin_voice, of_the_sound_worker]


@pytest.mark.parametrize("error_of", USERS)
@pytest.mark.parametrize("name", [*NONSENSE, *CUT])
def test_an_answer_that_is_no_frame_is_an_error_of_the_users_own(answering, error_of, name):
    answer, reason = NONSENSE.get(name) or (CUT[name], None)
    error = error_of(answering, answer)
    if error_of is of_the_hosted_engine:
        assert error.code == ("bad_frame" if reason else "engine_lost")
        assert not reason or (reason in error.en and reason in error.zh)
    elif error_of is of_the_builtin_voice:
        assert isinstance(error, EngineFault)
    else:
        assert isinstance(error, audio_process.WorkerLost) and not error.late


@pytest.mark.parametrize("error_of", [of_the_builtin_voice, of_the_sound_worker])
@pytest.mark.parametrize("answer", [b"", WHOLE[:-1]])
def test_an_answer_that_does_not_come_or_not_whole_is_waited_for_so_long(
    answering, error_of, answer
):
    """The hosted engine's silence is its watchdog's business: tests/engine/test_hosted_faults.py"""
    error = error_of(answering, answer, stays=True)
    assert isinstance(error, EngineStalled) or error.late


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"answer": None},
        {"answer": [0, 24000, 24000]},
        {"answer": [0, -1, 0, 0]},
        {"answer": [0, 1 << 32, 0, 0]},
        {"answer": [0, 24000.0, 0, 0]},
        {"answer": [False, "24000", 0, 0]},
        {"answer": [0, [], {}, 0]},
    ],
    ids=json.dumps,
)
def test_the_sound_worker_can_answer_nothing_but_counts(answering, answer):
    data = b"".join(pack(answer, bytes(8)))
    assert isinstance(of_the_sound_worker(answering, data), audio_process.WorkerLost)


@pytest.mark.parametrize("name", ["print", "body over its limit", "no object"])
def test_a_process_ends_when_what_it_is_asked_is_no_frame(name):
    """Of the hosted engine's: tests/engine/test_hosted_faults.py"""
    data, _ = NONSENSE[name]
    child = audio_process.WorkerProcess("encode", memory_bytes=1 << 31, cpu_s=5)
    lane = WorkerConnection()
    try:
        lane.start()
        lane._sock.sendall(data)
        assert lane._source.read(1) == b""
        child._process.stdin.write(data)
        child._process.stdin.flush()
        assert child._process.wait(30) == 0
    finally:
        lane.close(), child.end()


def test_a_body_that_the_hosted_engine_cannot_take_is_refused_with_a_sentence(answering):
    answering(b"")
    life = ChildProcess(PROGRAM, 1.0, lambda words: None)
    try:
        with pytest.raises(TooLarge) as error:
            life.call({"op": "encode"}, bytes(MAX_BODY + 1))
        assert error.value.code == "too_large_frame" and "64 MB" in error.value.en
    finally:
        life.kill()
