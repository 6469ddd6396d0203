"""The WebSocket stream: same samples as the file and the API, credit, cancel, resume, queue, and
what it refuses.
"""

from __future__ import annotations

import io
import json
import random
import threading
import time
import wave
from collections import Counter

import pytest
from websockets.exceptions import ConnectionClosed

from tests.api.client import Socket
from tests.serve import running

TEXT = {"input": "你好，今天我们来听一听声音。", "mode": "instruct", "seed": 5}


@pytest.fixture
def socket(studio):
    socket = Socket(studio)
    yield socket
    socket.close()


def settle(studio, condition, limit_s: float = 5.0) -> dict:
    """The state once `condition(state)` holds; the last one seen otherwise."""
    end = time.monotonic() + limit_s
    while True:
        state = studio.state()
        if condition(state) or time.monotonic() > end:
            return state
        time.sleep(0.02)


def grown_threads(before, after) -> list[str]:
    """Names of threads that came between two states; threads of pools are bounded and may stay."""
    growing = Counter(after["thread_names"]) - Counter(before["thread_names"])
    pools = ("AnyIO", "asyncio", "ThreadPool", "encode", "takes", "coder")
    return sorted(name for name in growing.elements() if not name.startswith(pools))


def idle(state) -> bool:
    return not (state["open"] or state["waiting"] or state["admitted"])


def test_streamed_file_and_api_are_the_same_samples(studio, socket):
    reply = socket.say(TEXT)
    end = reply.of("end")[0]
    assert end["samples"] * 2 == len(reply.pcm) > 10000 and end["seed"] == 5
    file = socket.http.get(end["url"])
    assert file.headers["content-disposition"].startswith("attachment")
    with wave.open(io.BytesIO(file.content)) as w:
        assert (w.getframerate(), w.getnchannels(), w.getnframes()) == (24000, 1, end["samples"])
        assert w.readframes(w.getnframes()) == bytes(reply.pcm)
    part = socket.http.get(end["url"], headers={"Range": "bytes=44-143"})
    assert part.status_code == 206 and part.content == file.content[44:144]
    body = {**TEXT, "voice": "starter-zh-high", "response_format": "pcm"}
    assert socket.http.post("/v1/audio/speech", json=body).content == bytes(reply.pcm)
    whole = socket.http.post(
        "/v1/audio/speech", json={**body, "stream": False, "response_format": "wav"}
    )
    assert int(whole.headers["content-length"]) == len(whole.content)
    with wave.open(io.BytesIO(whole.content)) as w:
        assert w.readframes(w.getnframes()) == bytes(reply.pcm)


def test_begin_tells_what_a_player_needs_and_frames_start_small(socket):
    reply = socket.say(TEXT)
    begin = reply.of("begin")[0]
    assert (
        begin["rate"] == 24000
        and begin["seed"] == 5
        and begin["sentences"]
        and begin["voice"] == "starter-zh-high"
        and begin["rtf"] < 0.7
    )
    assert reply.messages.index(begin) < reply.messages.index(reply.of("info")[0])
    assert reply.of("info")[0]["from"] == 0
    assert reply.frames[0][2] <= 0.06 * 24000 and max(f[2] for f in reply.frames) <= 0.2 * 24000


def test_what_the_engine_cannot_do_is_told_before_the_sound(studio):
    for locale, sentence in (("zh", "我只会哼。"), ("en", "I only hum.")):
        sock = Socket(studio, locale=locale)
        assert sock.say({**TEXT, "instructions": "sing seconds=1"}).of("begin")[0]["notes"] == [
            sentence
        ]
        assert sock.say(TEXT).of("begin")[0]["notes"] == []
        sock.close()


def test_no_more_is_sent_than_was_credited_and_the_engine_waits_too(studio, socket):
    seq = socket.start({**TEXT, "instructions": "seconds=600"}, credit=48000)
    n_received = 0
    with pytest.raises(TimeoutError):
        while True:
            message = socket.recv(0.7)
            n_received += (len(message) - 16) // 2 if isinstance(message, bytes) else 0
    assert n_received == 48000
    socket.send(op="credit", seq=seq, upto=60000)
    more = 0
    while more < 12000:
        message = socket.recv()
        more += (len(message) - 16) // 2 if isinstance(message, bytes) else 0
    assert more == 12000
    socket.send(op="cancel", seq=seq)
    reply = socket.hear(seq)
    assert reply.of("cancelled")[0]["samples"] <= 60000 + 2 * 4800, (
        "the engine ran ahead of the credit by more than a chunk"
    )
    assert idle(settle(studio, idle))


def test_a_new_start_silences_the_one_before_it(studio, socket):
    before = studio.state()
    seqs = [
        socket.start({**TEXT, "instructions": "seconds=30 rtf=0.5", "seed": n}) for n in range(9)
    ]
    last = socket.start({**TEXT, "instructions": "seconds=1", "seed": 99})
    reply = socket.hear(last)
    assert reply.of("end") and len(reply.pcm) == 48000
    assert not [m for m in reply.of("end") if m["seq"] in seqs]
    after = settle(studio, idle)
    assert (
        idle(after)
        and after["opened"] - before["opened"] == after["finalised"] - before["finalised"]
    )


def test_two_visitors_do_not_hear_each_other(studio):
    a, b = Socket(studio), Socket(studio)
    alone = a.say({**TEXT, "seed": 11}).pcm
    ta, tb = a.start({**TEXT, "seed": 11}), b.start({**TEXT, "seed": 60})
    heard_b, heard_a = b.hear(tb), a.hear(ta)
    assert heard_a.pcm == alone != heard_b.pcm
    assert b.http.get(heard_a.of("end")[0]["url"]).status_code == 404, "another visitor's take"
    a.close(), b.close()


def test_request_1_equals_request_50_alone_and_beside_seven_others(studio):
    sock = Socket(studio)
    first = sock.say(TEXT).pcm
    for n in range(48):
        sock.say({**TEXT, "input": f"Something else, number {n}.", "seed": n})
    assert sock.say(TEXT).pcm == first
    sockets = [Socket(studio) for _ in range(7)]
    seqs = [
        o.start({**TEXT, "instructions": "seconds=4 rtf=0.2", "seed": n})
        for n, o in enumerate(sockets)
    ]
    assert sock.say(TEXT).pcm == first
    for o, s in zip(sockets, seqs):
        o.hear(s)
        o.close()
    sock.close()


def test_a_broken_socket_resumes_without_a_hole(studio):
    http = studio.client()
    whole = Socket(studio, http).say({**TEXT, "instructions": "seconds=6"})
    sock = Socket(studio, http)
    seq = sock.start({**TEXT, "instructions": "seconds=6"}, credit=30000)
    reply = sock.hear(seq, until=("begin",))
    while sum(f[2] for f in reply.frames) < 30000:
        message = sock.recv()
        if isinstance(message, bytes):
            reply.frames.append((seq, 0, (len(message) - 16) // 2))
            reply.pcm += message[16:]
    sock.ws.socket.close()  # no closing handshake: the network went away
    settle(studio, idle)
    two = Socket(studio, http)
    rest = two.hear(two.start({}, job=reply.of("begin")[0]["job"], **{"from": 30000}))
    assert rest.frames[0][1] == 30000
    assert bytes(reply.pcm) + bytes(rest.pcm) == bytes(whole.pcm)
    done = two.hear(two.start({}, job=rest.of("end")[0]["job"], **{"from": 100000}))
    assert bytes(done.pcm) == bytes(whole.pcm)[200000:]
    assert (
        two.hear(two.start({}, job="take-ffff", **{"from": 0})).of("error")[0]["code"]
        == "stream_gone"
    )
    two.close()


def test_a_failure_in_mid_stream_is_told_and_the_next_one_works(studio, socket):
    reply = socket.say({**TEXT, "instructions": "seconds=5 fail=3"})
    error = reply.of("error")[0]
    assert error["code"] == "fault" and error["text"] and len(reply.pcm) > 0
    assert socket.say(TEXT).of("end")
    with (
        studio.client().stream(
            "POST",
            "/v1/audio/speech",
            json={**TEXT, "voice": "starter-zh-high", "instructions": "seconds=5 fail=3"},
        ) as r,
        pytest.raises(Exception, match="peer closed|incomplete"),
    ):
        r.read()


def test_clients_that_leave_at_random_moments_leave_nothing_behind(studio):
    for _ in range(3):
        Socket(studio).close()
    settle(studio, idle)
    before = studio.state()
    rng = random.Random(3)

    def leave(n: int) -> None:
        if n % 4 == 3:
            with (
                studio.client() as http,
                http.stream(
                    "POST",
                    "/v1/audio/speech",
                    json={**TEXT, "voice": "starter-zh-high", "instructions": "seconds=20 rtf=0.1"},
                ) as r,
            ):
                for n_received, _ in enumerate(r.iter_raw()):
                    if n_received >= n % 5:
                        return
            return
        with studio.client() as http:
            sock = Socket(studio, http)
            sock.start({**TEXT, "instructions": "seconds=20 rtf=0.1", "seed": n})
            for _ in range(rng.randrange(6)):
                sock.recv()
            sock.ws.socket.close() if n % 2 else sock.close()

    for batch in range(10):
        threads = [threading.Thread(target=leave, args=(batch * 20 + n,)) for n in range(20)]
        [t.start() for t in threads]
        [t.join(60) for t in threads]

    def same(s):
        return idle(s) and s["finalised"] == s["opened"] and s["fds"] <= before["fds"] + 2

    after = settle(studio, same)
    assert idle(after) and after["opened"] == after["finalised"] > before["opened"]
    assert after["fds"] <= before["fds"] + 2
    assert not grown_threads(before, after)


@pytest.mark.parametrize(
    "garbage",
    [
        "not json",
        "[1]",
        json.dumps({"op": "fly"}),
        json.dumps({"op": "start", "seq": "x", "credit": 1}),
        json.dumps({"op": "start", "seq": 1, "credit": -5}),
        b"\x00\xff binary",
        "x" * 200_000,
        "[" * 100_000,
    ],
)
def test_garbage_on_the_socket_closes_it_and_nobody_else_notices(studio, socket, garbage):
    other = Socket(studio)
    other.ws.send(garbage)
    with pytest.raises(ConnectionClosed):
        while True:
            other.recv(5)
    assert socket.say(TEXT).of("end")


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"input": ""}, "no_text"),
        ({"input": "😀😀"}, "no_text"),
        ({"input": "\x00\x07"}, "no_text"),
        ({"input": "字" * 100_000}, "too_long_text"),
        ({"input": "ok", "voice": "nobody"}, "voice_gone"),
        ({"input": "ok", "voice": ""}, "no_voice"),
        ({"input": "ok", "mode": "opera"}, "bad_field"),
        ({"input": 5}, "bad_field"),
        ({"input": "ok", "speed": 9}, "bad_speed"),
        ({"input": "ok", "speed": "fast"}, "bad_field"),
        ({}, "bad_field"),
        ({"input": "ok", "seed": 2**70}, "bad_seed"),
        ({"input": "ok", "voice": "../../etc/passwd"}, "voice_gone"),
    ],
)
@pytest.mark.parametrize("locale", ["zh", "en"])
def test_what_cannot_be_spoken_is_refused_with_a_sentence(studio, params, code, locale):
    sock = Socket(studio, locale=locale)
    error = sock.say(params).of("error")[0]
    assert error["code"] == code
    assert any("\u4e00" <= c <= "\u9fff" for c in error["text"]) == (locale == "zh")
    sock.close()


def test_a_lone_surrogate_is_refused(studio, socket):
    socket.ws.send(
        '{"op":"start","seq":77,"rate":24000,"credit":1000,"params":'
        '{"input":"a\\ud800b","voice":"starter-zh-high"}}'
    )
    assert socket.hear(77).of("error")[0]["code"] == "bad_text"


def test_the_line_has_places_and_an_end(tmp_path):
    with running(env={"KAIKOU_MAX_STREAMS": "1", "KAIKOU_MAX_WAITING": "2"}) as small:
        sockets = [Socket(small) for _ in range(4)]
        slow = {**TEXT, "instructions": "seconds=3 rtf=0.5"}
        first = sockets[0].start(slow)
        sockets[0].hear(first, until=("begin",))
        seqs = []
        for s in sockets[1:3]:
            seqs.append(s.start(slow))
            assert s.recv()["position"] == len(seqs)
        refused = sockets[3].say(slow).of("error")[0]
        assert refused["code"] == "busy" and refused["retry"] >= 1
        api = sockets[3].http.post("/v1/audio/speech", json={**slow, "voice": "starter-zh-high"})
        assert api.status_code == 429 and int(api.headers["retry-after"]) >= 1
        sockets[1].send(op="cancel", seq=seqs[0])
        assert sockets[1].hear(seqs[0]).of("cancelled")
        assert sockets[2].recv()["position"] == 1
        sockets[0].close()
        assert sockets[2].hear(seqs[1]).of("end"), "the one in line gets its turn"
        assert idle(settle(small, idle))


def test_a_silent_engine_becomes_an_error_not_a_hang():
    with running(env={"KAIKOU_STALL_S": "1"}) as small:
        sock = Socket(small)
        reply = sock.say({**TEXT, "instructions": "seconds=5 stall=2"})
        assert reply.of("error")[0]["code"] == "stalled"
        for _ in range(3):
            assert sock.say(TEXT).of("end")
        sock.close()


def test_speaking_before_the_engine_is_ready_says_so():
    with running(fake_start_s=60.0, wait=False) as early:
        http = early.client()
        assert http.get("/health/ready").status_code == 503
        assert http.get("/health/live").status_code == 200
        error = Socket(early, http).say(TEXT).of("error")[0]
        assert error["code"] == "notready" and error["retry"]
