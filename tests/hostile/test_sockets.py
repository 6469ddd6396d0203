"""Connections that cost the studio something and ask for nothing: too many, silent, unread, never
finished.
"""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, closing

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.api.client import Socket
from tests.api.test_demos import Guest, share
from tests.api.test_http import error
from tests.api.test_stream import TEXT, idle, settle
from tests.api.typist import PATH, Typist
from tests.serve import running
from webui.api.sockets import Sockets
from webui.errors import Busy
from webui.settings import Limits

COUNTS = {
    "KAIKOU_SOCKETS": "9",
    "KAIKOU_SOCKETS_PER_ADDRESS": "7",
    "KAIKOU_SOCKETS_PER_VISITOR": "3",
}
LIMITS = {
    **COUNTS,
    "KAIKOU_SILENT_S": "1",
    "KAIKOU_IDLE_S": "1",
    "KAIKOU_UNREAD_S": "1.5",
    "KAIKOU_STARTS_PER_MINUTE": "100000",
}


@pytest.fixture(scope="module")
def strict():
    with running(env=LIMITS) as studio:
        yield studio


@pytest.fixture
def patient():
    """On a busy machine a dozen sockets take longer to open than the others wait for a word."""
    with running(env=COUNTS) as studio:
        yield studio


def visit(http) -> dict:
    """The header of a new one."""
    http.cookies.clear()
    http.post("/tts/session")
    return {"Cookie": f"kk_visit={http.cookies['kk_visit']}"}


def opened(studio, path: str = PATH, **headers):
    return connect(
        studio.url.replace("http", "ws", 1) + path,
        proxy=None,
        legacy=True,
        additional_headers=headers,
    )


def n_opened(studio, stack: ExitStack, n: int, headers) -> int:
    """How many of `n` sockets are let in; they stay open with the stack."""
    count = 0
    for i in range(n):
        try:
            stack.enter_context(closing(opened(studio, **headers(i))))
        except InvalidStatus as refused:
            assert refused.response.status_code == 403
        else:
            count += 1
    return count


# ---- too many ------------------------------------------------------------------------------------
def test_sockets_are_counted_by_visitor_by_address_and_in_all(patient):
    http = patient.client()
    sock = visit(http)

    def same(n: int) -> dict:
        return sock

    def nobody(n: int) -> dict:
        return {}

    def visits(n: int) -> dict:
        return visit(http)

    def addresses(n: int) -> dict:
        return {**visit(http), "X-Forwarded-For": f"10.0.0.{n}"}

    def one_network(n: int) -> dict:
        return {**visit(http), "X-Forwarded-For": f"2001:db8::{n + 1}"}

    for headers, most in ((same, 3), (nobody, 7), (visits, 7), (addresses, 9), (one_network, 7)):
        for _ in range(2):  # what is closed is free again
            with ExitStack() as stack:
                assert n_opened(patient, stack, 12, headers) == most
            settle(patient, lambda s: s["sockets"] == 0)


def test_a_hundred_and_twenty_sockets_of_new_visits_are_too_many():
    sockets, n = Sockets(Limits()), 0
    with ExitStack() as stack, pytest.raises(Busy):
        for n in range(120):
            scope = {"client": ("10.0.0.1", n), "kk_key": None, "kk_owner": f"local/{n}"}
            stack.enter_context(sockets.one_more(scope))
    assert n == 64 and not sockets._open, "what is closed is not counted any more"


# ---- silent --------------------------------------------------------------------------------------
def closed_by(first) -> str:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            first.ws.recv(20)
    return closed.value.rcvd.reason


def test_a_socket_that_says_nothing_is_closed(strict):
    with strict.client() as http:
        demo = share(http, "starter-zh-high")
        for sock in (Socket(strict), Guest(strict, http, demo)):
            assert closed_by(sock) == "idle"


def test_a_stream_that_waits_for_credit_is_ended(strict):
    sock = Socket(strict)
    seq = sock.start({**TEXT, "instructions": "seconds=60"}, credit=4800)
    sock.send(op="ping", t=1)  # a word that is no credit
    ended = sock.hear(seq)
    assert ended.of("error")[0]["code"] == "idle" and len(ended.pcm) == 9600
    assert idle(settle(strict, idle)) and closed_by(sock) == "idle"


def test_a_text_that_is_heard_without_credit_is_ended_however_much_is_said(strict):
    typist = Typist(strict)
    typist.start(input="Hello there. ", credit=2400, mode="instruct", instructions="seconds=60")
    message = {}
    while message.get("type") != "speech.failed":
        typist.send(type="credit", upto=1)  # a word that is no credit
        try:
            data = typist.recv(0.1)
        except TimeoutError:
            continue
        message = data if isinstance(data, dict) else {}
    assert message["error"]["code"] == "idle" and idle(settle(strict, idle))
    typist.close()


def test_a_stream_that_is_made_slowly_is_not_silent(strict):
    sock = Socket(strict)
    reply = sock.say({**TEXT, "instructions": "seconds=2 first=2 rtf=1"})
    assert reply.of("end") and len(reply.pcm) == 96000
    sock.close()


def test_a_message_that_never_ends_is_silence(strict):
    """Its first piece is there, and then one byte and another, each a frame of its own."""
    sock = Socket(strict)
    raw, mask = sock.ws.socket, b"\0\0\0\0"
    raw.sendall(b"\x01\x81" + mask + b"{")
    with pytest.raises(ConnectionClosed):
        for _ in range(100):
            raw.sendall(b"\x00\x81" + mask + b" ")
            try:
                sock.ws.recv(0.1)
            except TimeoutError:
                continue


# ---- never finished, never read ------------------------------------------------------------------
def test_a_head_that_drips_ends_the_connection(strict):
    host, port = strict.url[7:].split(":")
    for first in (b"", b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=0.2) as s:
            s.sendall(first)
            if first:
                assert s.recv(4096).startswith(b"HTTP/1.1 200")
            s.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            for _ in range(150):
                try:
                    s.sendall(b"x")
                    if not s.recv(4096):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            else:
                raise AssertionError("it is still waited for")
    with socket.create_connection((host, int(port)), timeout=20) as s:
        try:
            assert s.recv(1) == b"", "one that says nothing at all is not waited for either"
        except ConnectionResetError:
            pass


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="of Linux")
@pytest.mark.parametrize("way", ["http", "socket"])
def test_a_reader_that_takes_nothing_is_ended(strict, way):
    before = settle(strict, idle)["fds"]
    loud = {**TEXT, "voice": "starter-zh-high", "instructions": "seconds=600"}
    host, port = strict.url[7:].split(":")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect((host, int(port)))
        if way == "http":
            # nothing holds this one back but its reader: it is not paced
            fields = "tts_text=Hello.&spk_id=alloy&instruct_text=seconds%3D600"
            s.sendall(f"GET /inference_instruct?{fields} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        else:
            with strict.client() as http:
                token = http.post("/tts/session").json()["token"]
                cookie = f"kk_visit={http.cookies['kk_visit']}"
            s.sendall(
                f"GET /tts/ws HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nUpgrade:"
                " websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key:"
                " AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            assert s.recv(4096).startswith(b"HTTP/1.1 101")
            start = {"op": "start", "seq": 1, "credit": 1 << 40, "params": loud}
            for message in ({"op": "hello", "v": 1, "token": token}, start):
                data = json.dumps(message).encode()
                s.sendall(b"\x81\xfe" + len(data).to_bytes(2, "big") + b"\0\0\0\0" + data)
        settle(strict, lambda s: s["open"])
        assert idle(settle(strict, idle, 20)), "it is still made for somebody who does not listen"
        assert settle(strict, lambda s: s["fds"] <= before, 20)["fds"] <= before


# ---- guesses -------------------------------------------------------------------------------------
def test_guessed_logins_are_slowed_and_say_so():
    env = {"KAIKOU_LOGINS_PER_MINUTE": "12"}
    with running("--auth", "bob:secret", env=env) as studio, studio.client() as bob:
        right, wrong = ({"user": "bob", "password": p} for p in ("secret", "guess"))
        assert bob.post("/login", data=right).status_code == 303
        bob.get("/")  # this browser has a visit from now on
        with studio.client() as http:
            for _ in range(9):
                assert http.post("/login", data=right).status_code == 303, "right ones are free"
            answers = [http.post("/login", data=wrong) for _ in range(12)]
            codes = [a.status_code for a in answers]
            assert codes[:4] == [401] * 4 and codes[-1] == 429
            assert int(answers[-1].headers["retry-after"]) >= 1
            assert error(answers[-1])["code"] == "rate_limited"
            page = http.post("/login", data={"key": "kk_guess"}, headers={"Accept": "text/html"})
            assert page.status_code == 429 and 'role="alert"' in page.text, "keys are guesses too"
            assert int(page.headers["retry-after"]) >= 1
            assert http.post("/login", data=right).status_code == 429, "nor is the right one tried"
            other = {"X-Forwarded-For": "10.9.8.7"}
            assert http.post("/login", data=right, headers=other).status_code == 303
        assert bob.post("/login", data=right).status_code == 303, "bob's browser is known"
