"""The census: every route of the app, Gradio's included, is asked without a key while keys are on.

All refuse but those that are named, five at most.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from tests.engine.fake import FakeEngine
from webui import app as root
from webui.api import permissions
from webui.settings import Paths, Server, Settings

EXAMPLE = {"version": "x", "folder": "player", "name": "controller.js", "token": "x"}


def routes_of(place, prefix: str = "") -> set[tuple[str, str]]:
    """(method, path pattern) of everything that is routed, however deep it is mounted or
    included.
    """
    routes: set[tuple[str, str]] = set()
    for route in place.routes:
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        path = prefix + getattr(route, "path", "")
        if getattr(route, "routes", None) or hasattr(inner, "routes"):
            routes |= routes_of(inner if hasattr(inner, "routes") else route, path)
        elif hasattr(route, "path"):
            kinds = getattr(route, "methods", None) or (
                ("WEBSOCKET",)
                if "WebSocket" in type(route).__name__
                else ("GET", "POST", "PUT", "PATCH", "DELETE")
            )
            routes |= {(kind, path.replace("//", "/")) for kind in kinds}
    return routes


def filled(pattern: str) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda m: EXAMPLE.get(m[1], "x"), pattern)


async def ask(app, method: str, path: str) -> int:
    """The status of an answer to somebody who shows nothing; 0 when there is none within seconds,
    as of an endless stream.
    """
    statuses: list[int] = []
    headers = [(b"host", b"127.0.0.1"), (b"content-length", b"0")]
    scope = {
        "type": "websocket" if method == "WEBSOCKET" else "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "subprotocols": [],
    }
    if method == "WEBSOCKET":
        del scope["method"]
    incoming = iter(
        [
            (
                {"type": "websocket.connect"}
                if method == "WEBSOCKET"
                else {"type": "http.request", "body": b"", "more_body": False}
            )
        ]
    )

    async def receive():
        message = next(incoming, None)
        if message is None:
            await asyncio.sleep(10)
        return message or {"type": "http.disconnect"}

    async def send(message):
        kind = message["type"]
        if kind in ("http.response.start", "websocket.accept", "websocket.close"):
            statuses.append(message.get("status", 101 if kind == "websocket.accept" else 401))

    try:
        await asyncio.wait_for(app(scope, receive, send), 5)
    except Exception:
        statuses.append(500)
    return statuses[0] if statuses else 0


def open_routes(app) -> set[str]:
    """Patterns that do not refuse.

    One that crashes or answers with anything else was reached, and counts as open.
    """

    async def all_of_them():
        return {
            pattern
            for method, pattern in sorted(routes_of(app))
            if await ask(app, method, filled(pattern)) != 401
        }

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    settings = Settings(
        server=Server(api_keys=("0" * 64,)),
        paths=replace(Paths(), data_dir=tmp_path_factory.mktemp("data")),
    )
    app, studio = root.build(settings, FakeEngine)
    yield app
    studio.close()


def test_every_route_refuses_without_a_key_but_the_named_ones(app):
    routes = routes_of(app)
    assert len(permissions.NAMED) <= 5
    assert (
        len(routes) > 80
        and {
            ("POST", "/v1/audio/speech"),
            ("WEBSOCKET", "/tts/ws"),
            ("GET", "/metrics"),
            ("GET", "/config"),
        }
        <= routes
    ), "the walk misses something"
    assert {p for _, p in routes if p.startswith("/gradio_api/")}, "Gradio's routes are among them"
    assert open_routes(app) == set(permissions.NAMED)


def test_the_walk_finds_a_planted_route_and_the_census_one_that_is_let_through(app, monkeypatch):
    """The control: were a route open that nobody named, the test above would fail."""

    async def planted(request):
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("here")

    n = len(app.router.routes)
    app.add_route("/v1/planted", planted, methods=["GET"])
    app.router.routes.insert(0, app.router.routes.pop())  # before Gradio's, which take everything
    try:
        assert ("GET", "/v1/planted") in routes_of(app)
        assert open_routes(app) == set(permissions.NAMED), "the door refuses what it does not know"
        monkeypatch.setattr(
            permissions, "_FREE", re.compile(permissions._FREE.pattern + "|/v1/planted")
        )
        assert open_routes(app) == {*permissions.NAMED, "/v1/planted"}
    finally:
        del app.router.routes[0]
    assert len(app.router.routes) == n


@pytest.mark.parametrize(
    "path",
    [
        "/login/x",
        "/loginx",
        "/login/",
        "//login",
        "/health/live/x",
        "/health/liveness",
        "/tts/static/x/../../../metrics",
        "/tts/static/x/y/z/w",
        "/tts/static/x/y",
        "/tts/static/../metrics",
        "/d",
        "/d//v1/models",
        "/tts/static/x/%2e%2e",
        "/LOGIN",
        "/login;x",
        "/login\n",
        "/health/live\x00",
    ],
)
def test_what_only_looks_like_a_named_route_is_none(app, path):
    status = asyncio.run(ask(app, "GET", path))
    assert status == 401 or (status == 404 and path.startswith(("/d/", "/tts/static/"))), (
        "at most, nothing is there"
    )


def test_what_no_scope_names_needs_admin(app):
    """A route that somebody adds tomorrow is the studio's own until it is given a scope on
    purpose.
    """
    of = {}
    for method, pattern in routes_of(app):
        of.setdefault(frozenset(permissions.needed(method, filled(pattern))), set()).add(pattern)
    assert permissions.needed("GET", "/v1/planted") == frozenset()
    own_routes = {
        p
        for p in of[frozenset()]
        if not p.startswith(
            ("/gradio_api", "/{", "/static", "/assets", "/theme", "/file", "/config", "/info")
        )
    }
    assert {
        "/metrics",
        "/v1/keys",
        "/v1/keys/{key_id}",
        "/v1/demos",
        "/tts/model/fetch",
        "/",
    } <= own_routes
    assert {"/v1/audio/speech", "/tts/ws", "/tts/result/{name}"} <= of[frozenset({"speak"})] and {
        "/v2/synthesize/batch",
        "/v2/jobs/{job_id}",
    } <= of[frozenset({"jobs"})]
    assert {"/v1/audio/voices/{voice_id}/sample", "/v1/pronunciations"} <= of[frozenset({"voices"})]
