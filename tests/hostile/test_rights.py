"""Whoever was let in by a key, a login or a demo link, and whose right ends while they are inside:
nothing more is spoken, sent or replayed for them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import httpx
import pytest

from tests.api.client import Socket
from tests.api.test_demos import Guest, share
from tests.api.test_http import clip, error
from tests.api.test_keys import bearer, make, script, until
from tests.api.test_stream import idle, settle
from tests.api.typist import Typist
from tests.serve import running
from webui.store import JobStore

SLOW = {"mode": "instruct", "instructions": "seconds=60 rtf=0.5"}  # takes half a minute to make
SAID = {"input": "Hello there.", **SLOW}


@pytest.fixture(scope="module")
def house():
    """A locked studio, its keeper's browser, and a voice of the keeper's own."""
    env = {"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_LOGINS_PER_MINUTE": "1000"}
    with running("--auth", "bob:secret", env=env) as studio, closing(logged_in(studio)) as http:
        voice = http.post(
            "/v1/audio/voices",
            files={"audio_sample": clip(4)},
            data={"name": "Lin Wan", "consent": "me"},
        ).json()["id"]
        yield studio, http, voice


def logged_in(studio) -> httpx.Client:
    http = studio.client()
    assert http.post("/login", data={"user": "bob", "password": "secret"}).status_code == 303
    http.get("/")
    return http


class Right:
    """One that lets somebody in: how they ask, and how it is taken away."""

    def __init__(self, kind: str, setup):
        self.studio, self.keeper, voice = setup
        self.kind, self.below, self.http = kind, "", self.studio.client()
        self.code = {"key": "invalid_api_key", "login": "login_needed", "link": "demo_ended"}[kind]
        self.params = dict(SAID)
        if kind == "key":
            new_key = make(self.keeper, "speak", "jobs")
            self.headers, self.id = bearer(new_key["key"]), new_key["id"]
            self.http.headers.update(self.headers)
        elif kind == "login":
            self.http = logged_in(self.studio)
        else:
            demo = share(self.keeper, voice, **SLOW)
            self.id, self.demo, self.below = demo["id"], demo, demo["path"]
        if kind != "link":
            self.params["voice"] = "starter-zh-high"

    def end(self) -> None:
        if self.kind == "login":
            with self.studio.client(cookies=self.http.cookies) as other:
                assert other.post("/logout").status_code == 204
        else:
            path = "/v1/keys/" if self.kind == "key" else "/v1/demos/"
            assert self.keeper.delete(path + self.id).status_code == 204

    def socket(self) -> Socket:
        if self.kind == "link":
            return Guest(self.studio, self.http, self.demo)
        return Socket(self.studio, self.http, headers=dict(getattr(self, "headers", {})))


@pytest.fixture(params=["key", "login", "link"])
def right(request, house):
    right = Right(request.param, house)
    yield right
    assert idle(settle(right.studio, idle)), "something is still made for nobody"


def test_the_pages_socket_hears_no_more(right):
    sock = right.socket()
    seq = sock.start(right.params)
    sock.hear(seq, until=("begin",))
    right.end()
    reply = sock.hear(seq)
    assert reply.of("error")[0]["code"] == right.code
    assert len(reply.pcm) < 30 * 48000 and idle(settle(right.studio, idle))
    for message in ({"op": "ping"}, {"op": "credit", "seq": seq, "upto": 1 << 41}):
        sock.send(**message)
        assert sock.recv()["code"] == right.code, "each message is asked about"
    sock.close()


def test_what_was_made_before_is_not_sent_afterwards(right):
    """The sound waits for credit, or lies in memory as a whole: neither goes out any more."""
    sock = right.socket()
    short = (
        {**right.params, "instructions": "seconds=0.5"} if right.kind != "link" else right.params
    )
    seq = sock.start(short, credit=4800)
    begin = sock.hear(seq, until=("begin",)).messages[-1]
    n_received = 0
    while n_received < 4800:
        message = sock.recv()
        n_received += (len(message) - 16) // 2 if isinstance(message, bytes) else 0
    right.end()
    sock.send(op="credit", seq=seq, upto=1 << 40)
    reply = sock.hear(seq)
    assert reply.of("error")[0]["code"] == right.code and not reply.pcm
    retry = sock.hear(sock.start({}, job=begin["job"], **{"from": 4800}))
    assert retry.of("error")[0]["code"] == right.code and not retry.pcm
    sock.close()


@pytest.mark.parametrize("more", [{}, {"stream_format": "sse"}, {"response_format": "mp3"}])
def test_a_stream_of_http_breaks_off(right, more):
    ask = {"response_format": "pcm", **right.params, **more}
    with (
        pytest.raises(httpx.RemoteProtocolError),
        right.http.stream("POST", right.below + "/v1/audio/speech", json=ask) as answer,
    ):
        pieces = answer.iter_raw()
        next(pieces)
        right.end()
        for _ in pieces:
            pass
    assert answer.status_code == 200


def test_a_whole_file_is_refused_although_it_was_begun(right):
    before = right.studio.state()["opened"]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            right.http.post,
            right.below + "/v1/audio/speech",
            json={**right.params, "stream": False},
        )
        settle(right.studio, lambda s: s["opened"] > before)
        right.end()
        answer = future.result(20)
    assert answer.status_code in (401, 403) and error(answer)["code"] == right.code


def test_a_text_that_comes_afterwards_is_not_spoken(house):
    right = Right("key", house)
    typist = Typist(right.studio, right.headers)
    typist.start(input="Hello there. ", credit=1 << 40, **SLOW)
    typist.hear(until="sound")
    right.end()
    failed = typist.hear().end
    assert failed["type"] == "speech.failed" and failed["error"]["code"] == right.code
    opened = settle(right.studio, idle)["opened"]
    typist.text("And this? ")
    assert typist.recv()["error"]["code"] == right.code
    typist.send(type="end")
    assert typist.recv()["error"]["code"] == right.code
    typist.send(type="start", voice="starter-zh-high", input="Or this?")
    assert typist.recv()["error"]["code"] == right.code
    assert right.studio.state()["opened"] == opened
    typist.close()


def test_the_lines_of_a_batch_of_a_key_stop_with_it(house):
    right = Right("key", house)
    batch = {"texts": ["Hello there."] * 30, "voice": "starter-zh-high", **SLOW}
    waiting = right.http.post("/v2/synthesize/batch", json={**batch, "async": True}).json()["id"]
    with (
        pytest.raises(httpx.RemoteProtocolError),
        right.http.stream("POST", "/v2/synthesize/batch", json=batch) as answer,
    ):
        settle(right.studio, lambda s: s["open"])
        right.end()
        answer.read()
    jobs = JobStore(right.studio.data_dir)
    job_by_id = until(
        lambda: {job.id: job for job in jobs.list(right.id, 9)},
        lambda job_by_id: not any(job.lines.get("running") for job in job_by_id.values()),
    )
    jobs.close()
    assert len(job_by_id) == 2 and waiting in job_by_id
    assert {job.state for job in job_by_id.values()} == {"cancelled"}
    assert {state for job in job_by_id.values() for state in job.lines} == {"cancelled"}


# ---- keys that another process revokes -----------------------------------------------------------
def test_a_key_that_the_script_revokes_ends_its_streams_and_batches(house):
    """Nobody tells the studio. It is noticed at the next message, the next piece, the next line."""
    right = Right("key", house)
    sock, text = right.socket(), Typist(right.studio, right.headers)
    seq = sock.start(right.params, credit=4800)
    sock.hear(seq, until=("begin",))
    text.start(credit=1 << 40, **SLOW)
    job = right.http.post(
        "/v2/synthesize/batch",
        json={
            "texts": [f"Hello there, number {n}." for n in range(200)],
            "voice": "starter-zh-high",
            "mode": "instruct",
            "instructions": "seconds=0.4 rtf=0.5",
            "async": True,
        },
    ).json()["id"]
    with (
        pytest.raises(httpx.RemoteProtocolError),
        right.http.stream(
            "POST", "/v1/audio/speech", json={"response_format": "pcm", **right.params}
        ) as answer,
    ):
        pieces = answer.iter_raw()
        next(pieces)
        assert script(right.studio.data_dir, "revoke", right.id).returncode == 0
        for _ in pieces:
            pass
    sock.send(op="credit", seq=seq, upto=1 << 40)
    assert sock.hear(seq).of("error")[0]["code"] == right.code
    text.text("Hello there. ")
    assert text.hear(until=("error", "speech.failed")).end["error"]["code"] == right.code
    sock.close(), text.close()
    jobs = JobStore(right.studio.data_dir)
    assert (
        until(lambda: jobs.get(right.id, job), lambda j: j.state == "cancelled").lines["done"] < 200
    )
    jobs.close()
    assert idle(settle(right.studio, idle))


def test_what_ended_stays_so_after_a_restart(tmp_path):
    """A login that was ended, and the batch of a key that was revoked while the studio was away."""
    with (
        running("--auth", "bob:secret", data_dir=tmp_path) as studio,
        closing(logged_in(studio)) as first,
        closing(logged_in(studio)) as second,
    ):
        key = make(first, "jobs")
        job = studio.client(headers=bearer(key["key"])).post(
            "/v2/synthesize/batch",
            json={"texts": ["Hello there."] * 9, "voice": "starter-zh-high", "async": True, **SLOW},
        )
        settle(studio, lambda s: s["open"])
        cookies = [dict(http.cookies) for http in (first, second)]
        assert first.post("/logout").status_code == 204
    assert script(tmp_path, "revoke", key["id"]).returncode == 0
    with running("--auth", "bob:secret", data_dir=tmp_path) as studio:
        jobs = JobStore(tmp_path)
        job_row = until(
            lambda: jobs.get(key["id"], job.json()["id"]),
            lambda j: j.state == "cancelled" and not j.lines.get("running"),
        )
        jobs.close()
        assert job_row.state == "cancelled" and set(job_row.lines) == {"cancelled"}
        assert idle(settle(studio, idle))
        statuses = [studio.client(cookies=c).get("/v1/models").status_code for c in cookies]
        assert statuses == [401, 200]


# ---- links that expire ---------------------------------------------------------------------------
def test_a_link_that_expires_ends_what_it_speaks(house):
    studio, http, voice = house
    demo = share(http, voice, days=4 / 86400, **SLOW)
    with studio.client() as guest, ThreadPoolExecutor(1) as pool:
        sock = Guest(studio, guest, demo)
        seq = sock.start({"input": "Hello there."})
        sock.hear(seq, until=("begin",))

        def listen() -> int:
            n = 0
            ask = {"input": "Hello there.", "response_format": "pcm"}
            with (
                suppress(httpx.RemoteProtocolError),
                studio.client() as other,
                other.stream("POST", demo["path"] + "/v1/audio/speech", json=ask) as answer,
            ):
                for piece in answer.iter_raw():
                    n += len(piece)
            return n

        future = pool.submit(listen)
        reply = sock.hear(seq, timeout=30)
        assert reply.of("error")[0]["code"] == "demo_expired" and len(reply.pcm) < 60 * 48000
        assert 0 < future.result(30) < 60 * 48000
        sock.close()
    assert idle(settle(studio, idle))


# ---- the right itself ----------------------------------------------------------------------------
def test_a_key_that_ends_itself_still_hears_that_it_did(house):
    studio, http, _ = house
    boss = make(http, "admin")
    with studio.client(headers=bearer(boss["key"])) as program:
        assert program.delete(f"/v1/keys/{boss['id']}").status_code == 204
        assert program.get("/v1/models").status_code == 401


def test_a_login_ends_where_it_is_ended_and_others_go_on(house):
    studio, http, _ = house
    first, second = logged_in(studio), logged_in(studio)
    stolen = dict(first.cookies)
    assert first.post("/tts/session").json()["can_log_out"] is True
    answer = first.post("/logout")
    assert answer.status_code == 204 and "Max-Age=0" in answer.headers["set-cookie"]
    assert first.get("/v1/models").status_code == 401
    with studio.client(cookies=stolen) as thief:
        assert thief.get("/v1/models").status_code == 401, "the cookie is worth nothing any more"
        assert thief.post("/tts/session").status_code == 401
    assert second.get("/v1/models").status_code == http.get("/v1/models").status_code == 200
    assert studio.client().post("/logout").status_code == 401
    first.close(), second.close()


def test_a_login_by_a_key_ends_with_the_key_and_by_itself(house):
    studio, http, _ = house
    boss = make(http, "admin")
    with studio.client() as page:
        for _ in range(2):
            assert page.post("/login", data={"key": boss["key"]}).status_code == 303
            assert page.get("/v1/models").status_code == 200
            assert page.post("/logout").status_code == 204
            assert page.get("/v1/models").status_code == 401
        page.post("/login", data={"key": boss["key"]})
        sock = Socket(studio, page)
        seq = sock.start(SAID)
        sock.hear(seq, until=("begin",))
        assert http.delete(f"/v1/keys/{boss['id']}").status_code == 204
        assert sock.hear(seq).of("error")[0]["code"] == "invalid_api_key"
        sock.close()
