"""Nothing that a request does on the event loop touches SQLite or the data folder: whoever waits
for the disk waits in a thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.test_census import routes_of
from tests.api.test_http import clip
from tests.engine.fake import FakeEngine
from webui import app as root
from webui.settings import EngineChoice, Paths, Server, Settings
from webui.store.sqlite import Database

AUDITED = ("open", "os.", "sqlite3.", "shutil.", "tempfile.")
TEXT = "Hello there."


class Watch:
    """What touched the disk in a thread that must not: the one that is told by `begin`."""

    def __init__(self):
        self.folder, self.thread, self.violations = None, None, []
        sys.addaudithook(self._audit)  # for good: it does nothing while no thread is watched

    def begin(self, folder: Path) -> None:
        self.folder, self.thread, self.violations = str(folder), threading.get_ident(), []

    def end(self) -> None:
        self.thread = None

    def touched(self, kind: str, path: object = "") -> None:
        if self.thread == threading.get_ident() and (
            not path or (isinstance(path, str | os.PathLike) and self.folder in os.fspath(path))
        ):
            self.violations.append(f"{self.place} {kind} {path}")

    def _audit(self, event: str, args: tuple) -> None:
        if self.thread is not None and event.startswith(AUDITED) and args:
            self.touched(event, args[0] or "-")

    place = ""  # what is asked just now


WATCH = Watch()


@pytest.fixture
def watch(monkeypatch):
    run, stat = Database._run, os.stat

    def _run(self, *args, **named):
        WATCH.touched("SQLite")
        return run(self, *args, **named)

    def _stat(path, *args, **named):
        WATCH.touched("os.stat", path)
        return stat(path, *args, **named)

    monkeypatch.setattr(Database, "_run", _run)
    monkeypatch.setattr(os, "stat", _stat)
    yield WATCH
    WATCH.end()


def scope_of(method: str, path: str, headers: dict[str, str]) -> dict:
    path, _, query = path.partition("?")
    all_headers = {"host": "127.0.0.1", **headers}
    is_socket = method == "WEBSOCKET"
    return {
        "type": "websocket" if is_socket else "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        **({"subprotocols": []} if is_socket else {"method": method}),
        "scheme": "ws" if is_socket else "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode()) for k, v in all_headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


async def ask(app, method: str, path: str, headers: dict, body: bytes = b"", limit_s: float = 10):
    """(status, headers, body) of the answer; what takes longer is left."""
    response_start, data = {}, bytearray()
    incoming = iter([{"type": "http.request", "body": body, "more_body": False}])
    scope = scope_of(method, path, {"content-length": str(len(body)), **headers})
    disconnect_event = asyncio.Event()

    async def receive():
        message = next(incoming, None)
        if message is None:
            await disconnect_event.wait()
        return message or {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            response_start.update(message)
        data.extend(message.get("body", b""))

    with suppress(TimeoutError):
        await asyncio.wait_for(app(scope, receive, send), limit_s)
    response_headers = {k.decode(): v.decode() for k, v in response_start.get("headers", [])}
    return response_start.get("status", 0), response_headers, bytes(data)


async def talk(app, path: str, headers: dict, messages: list[dict], is_last) -> list[dict]:
    """What a socket told up to a message for which `is_last` holds.

    The first message is sent when the socket is open, each other one after the answer to that
    before.
    """
    replies, more, over = [], asyncio.Queue(), asyncio.Event()
    waiting = iter(messages)
    await more.put({"type": "websocket.connect"})

    async def send(message):
        if message["type"] == "websocket.close":
            over.set()
            return
        if message["type"] == "websocket.send" and message.get("text"):
            replies.append(json.loads(message["text"]))
            if is_last(replies[-1]):
                over.set()
        elif message["type"] != "websocket.accept":
            return
        if (following := next(waiting, None)) is not None:
            await more.put({"type": "websocket.receive", "text": json.dumps(following)})

    task = asyncio.create_task(app(scope_of("WEBSOCKET", path, headers), more.get, send))
    await asyncio.wait_for(over.wait(), 20)
    await more.put({"type": "websocket.disconnect", "code": 1000})
    await asyncio.wait_for(task, 20)
    return replies


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    settings = Settings(
        server=Server(auth=(("bob", "secret"),)),
        engine=EngineChoice(name="builtin"),  # no models: nothing is fetched
        paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("data")),
    )
    app, studio = root.build(settings, FakeEngine)
    studio.starting.join()
    yield app, studio, settings.paths.data_dir
    studio.close()


def as_json(payload: dict) -> bytes:
    return json.dumps(payload).encode()


async def everything(app, studio, watch: Watch) -> set[int]:
    """Every route, asked by a login, a key and a link's guest, with the bodies and ids that let it
    do something. Returns the statuses seen.
    """

    async def send_request(
        method: str, path: str, headers: dict, body: bytes = b"", limit_s: float = 10
    ):
        watch.place = f"{method} {path}"
        status, response_headers, data = await ask(app, method, path, headers, body, limit_s)
        statuses.add(status)
        return status, response_headers, data

    statuses: set[int] = set()
    kind = {"content-type": "application/json"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    status, reply, _ = await send_request("POST", "/login", form, b"user=bob&password=secret")
    assert status == 303
    bob = {**kind, "cookie": reply["set-cookie"].partition(";")[0]}
    _, reply, _ = await send_request("GET", "/", bob)
    bob["cookie"] += "; " + reply["set-cookie"].partition(";")[0]
    _, _, data = await send_request(
        "POST", "/v1/keys", bob, as_json({"name": "k", "scopes": ["admin"]})
    )
    key = {**kind, "authorization": f"Bearer {json.loads(data)['key']}"}
    voice, _ = await asyncio.to_thread(
        studio.voices.add, "user-bob/api", clip(4), "mine", consent="me"
    )
    voice = voice.id
    _, _, data = await send_request(
        "POST", "/v1/demos", bob, as_json({"voice": voice, "title": "t"})
    )
    demo = json.loads(data)
    _, _, data = await send_request("POST", "/tts/session", bob)
    token = json.loads(data)["token"]
    speak_body = as_json({"input": TEXT, "voice": voice, "response_format": "pcm"})
    jobs = []
    for credentials in (bob, key):
        status, reply, data = await send_request(
            "POST", "/v1/audio/speech", credentials, speak_body
        )
        assert status == 200 and len(data) > 1000
        jobs.append(reply["x-job-id"])
    await send_request(
        "POST", "/v1/audio/speech", bob, as_json({**json.loads(speak_body), "stream_format": "sse"})
    )
    guest = demo["path"]
    status, _, _ = await send_request("POST", guest + "/v1/audio/speech", kind, speak_body)
    assert status == 200
    _, _, data = await send_request("POST", guest + "/tts/session", kind)
    tokens = {guest: json.loads(data)["token"], "": token}
    _, _, data = await send_request(
        "POST", "/v2/synthesize/batch", bob, as_json({"texts": [TEXT], "voice": voice})
    )
    assert data[:2] == b"PK"

    # sockets: said, resumed, and refused when the link has ended
    for below, credentials in (("", bob), (guest, {})):
        watch.place = f"socket {below}"
        start = {"op": "start", "seq": 1, "credit": 1 << 40, "params": json.loads(speak_body)}
        hello = {"op": "hello", "v": 1, "token": tokens[below]}
        reply = await talk(
            app,
            below + "/tts/ws",
            credentials,
            [hello, start, {"op": "ping"}],
            lambda m: m["op"] == "end",
        )
        job = next(m["job"] for m in reply if m["op"] == "end")
        resume_message = {"op": "start", "seq": 2, "credit": 1 << 40, "job": job, "from": 10}
        reply = await talk(
            app, below + "/tts/ws", credentials, [hello, resume_message], lambda m: m["op"] == "end"
        )
    for credentials in (bob, key):
        watch.place = "text-in socket"
        await talk(
            app,
            "/v1/audio/speech/stream",
            credentials,
            [{"type": "start", "voice": voice, "input": TEXT}, {"type": "end"}],
            lambda m: m["type"] == "speech.audio.done",
        )

    # takes that lie on the disk alone
    studio.takes._store._at_hand.clear()
    studio.job_runner._writer.submit(lambda: None).result()
    _, _, data = await send_request("GET", "/v1/audio/takes", bob)
    take = json.loads(data)["data"][0]["id"]
    app.state.recent._jobs.clear()
    studio.takes._store._at_hand.clear()
    status, _, _ = await send_request("GET", f"/tts/result/{take}.json", bob)
    assert status == 200
    status, _, _ = await send_request("GET", f"/tts/result/{take}.wav", bob)
    assert status == 200

    # every route of the app, whatever it answers
    ids = {
        "{voice_id}": voice,
        "{job_id}": jobs[0],
        "{take_id}": take,
        "{token}": demo["path"][3:],
        "{demo_id}": demo["id"],
    }
    for method, pattern in sorted(routes_of(app)):
        path = pattern
        for name, value in ids.items():
            path = path.replace(name, value if method in ("GET", "HEAD") else "x")
        path = path.replace("{", "").replace("}", "").replace(":path", "")
        if method != "WEBSOCKET" and path != "/logout":
            for credentials in (bob, key, {}):
                with suppress(Exception):  # a route of Gradio's may not like what it is given
                    await send_request(
                        method, path, credentials, b"" if method in ("GET", "HEAD") else b"{}", 0.5
                    )

    # links and keys that end
    studio.share_links._clock = lambda: demo["expires_at"] + 1.0
    for path in (guest, guest + "/tts/session", guest + "/v1/audio/speech"):
        status, _, _ = await send_request(
            "GET" if path == guest else "POST", path, kind, speak_body
        )
        assert status == 403
    status, _, _ = await send_request("POST", "/login", form, b"user=bob&password=wrong")
    assert status == 401
    for key_told in await asyncio.to_thread(studio.keys.list, "user-bob/x"):
        await send_request("DELETE", f"/v1/keys/{key_told.id}", bob)
    status, _, _ = await send_request("GET", "/v1/models", key)
    assert status == 401
    await send_request("POST", "/logout", bob)
    await send_request("GET", "/v1/models", bob)
    return statuses


def test_no_request_touches_the_disk_on_the_event_loop(built, watch):
    app, studio, folder = built

    async def run() -> set[int]:
        watch.begin(folder)
        try:
            return await everything(app, studio, watch)
        finally:
            watch.end()

    statuses = asyncio.run(run())
    assert {200, 204, 303, 401, 403, 404, 422} <= statuses
    assert watch.violations == []


def test_the_watch_sees_what_it_must(built, watch):
    """The control: each kind of touch is found on the watched thread, and none elsewhere."""
    _, studio, folder = built
    path = folder / "seen"

    def touch() -> None:
        path.write_bytes(b"x")
        path.exists()
        studio.pronunciations.put("local/a", "GPU", "G P U")
        path.unlink()

    watch.begin(folder)
    watch.place = ""
    thread = threading.Thread(target=touch)
    thread.start(), thread.join()
    assert watch.violations == []
    touch()
    watch.end()
    assert {line.split()[0] for line in watch.violations} >= {
        "open",
        "os.stat",
        "SQLite",
        "os.remove",
    }
