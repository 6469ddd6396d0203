"""What Gradio's own routes may be asked: only what the page needs, and only of the visitor's own
uploads.

Gradio is mounted into the studio's app. Left alone it opens every path an event names, fetches
addresses, serves what lies in its temporary folder and queues whatever comes. Pure ASGI, so that
streams pass untouched.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from ..errors import BadInput, Busy, NotAllowed, NotFound
from ..studio import ADMIN
from . import endpoints
from .first_load import FirstLoad
from .uploads import Uploads

API = "/gradio_api"
ROUTES = re.compile(
    r"(GET|HEAD) (/|/config/?|/theme\.css|/robots\.txt|/favicon\.ico|/manifest\.json"
    r"|/pwa_icon(/\d+)?|/(static|assets|svelte)/.+)"
    rf"|(GET|HEAD) {API}/(queue/data|heartbeat/[^/]+|startup-events|app_id|info/?|theme\.css)"
    rf"|POST {API}/queue/join"
)
# Programs: the named endpoints outside the queue, and the same ones as tools of an MCP server.
PROGRAMS = re.compile(rf"POST {API}/((api|run)/(predict|{'|'.join(endpoints.NAMES)})/?|mcp/?)")
TAKE = re.compile(rf"{API}/file=https?://[^?#]*/tts/result/(take-[0-9a-f]+\.wav)")
MAX_EVENTS_EACH = 16  # events of one visitor that wait, run, or whose result was not fetched
MAX_UNFETCHED_S = 600.0  # a page that was closed before it fetched a result never comes back for it


def parse_event(body: bytes) -> dict:
    """Return the JSON object of a request to Gradio's queue. Raises BadInput."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise BadInput("bad_json.request")
    return event


def named_files(event: dict) -> set[str]:
    """Return every path that the event names as a file, in whichever field and however deep.

    Raises BadInput for a number that is not finite: Python's parser accepts NaN and Infinity.
    """
    paths, pending = set(), [event]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if value.get("path") is not None:
                paths.add(str(value["path"]))
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise BadInput("bad_number.not_finite")
    return paths


@dataclass(frozen=True)
class Event:
    session: str
    created_s: float


class EventLimit:
    """Counts each visitor's events in Gradio's queue. Used on the event loop only."""

    def __init__(self, queue):
        self._queue = queue
        self._events: dict[str, OrderedDict[str, Event]] = {}  # owner -> event id -> event
        self._joining: dict[str, int] = {}  # owner -> requests to join that are being answered

    def join(self, owner: str) -> None:
        """Count one more.

        Raises Busy when the visitor has enough; each call is followed by `joined`.
        """
        self._forget_finished(owner)
        n = len(self._events.get(owner, ())) + self._joining.get(owner, 0)
        if n >= MAX_EVENTS_EACH:
            raise Busy("busy.page", retry_after_s=2)
        self._joining[owner] = self._joining.get(owner, 0) + 1

    def joined(self, owner: str, session: str, event_id: str) -> None:
        """The queue took the event, or did not: then `event_id` is empty."""
        self._joining[owner] -= 1
        if not self._joining[owner]:
            del self._joining[owner]
        if event_id:
            self._events.setdefault(owner, OrderedDict())[event_id] = Event(
                session, time.monotonic()
            )

    def _forget_finished(self, owner: str) -> None:
        events = self._events.get(owner, OrderedDict())
        for event_id, event in list(events.items()):
            is_running = event_id in self._queue.event_ids_to_events
            unfetched = self._queue.pending_event_ids_session.get(event.session, set())
            if is_running:
                continue
            if time.monotonic() - event.created_s > MAX_UNFETCHED_S:
                unfetched.discard(event_id)
                if not unfetched:
                    self._queue.pending_event_ids_session.pop(event.session, None)
                    self._queue.pending_messages_per_session.pop(event.session, None)
            if event_id not in unfetched:
                del events[event_id]
        if not events:
            self._events.pop(owner, None)


class PageMiddleware:
    """Stands before the mounted Gradio app of the page `blocks`. `root_path`: as in the settings.
    `scripts`: the HTML that loads the page's own scripts.

    Raises named errors; the app that Gradio is mounted into answers them.
    """

    def __init__(self, app, blocks, uploads: Uploads, root_path: str, scripts: str):
        self._app, self._blocks, self._uploads, self._root_path = app, blocks, uploads, root_path
        self._first_load = FirstLoad(app, scripts)
        self._events = EventLimit(blocks._queue)
        self.routes = app.routes  # so that a list of all routes still finds Gradio's

    async def __call__(self, scope, receive, send) -> None:
        method, path = scope.get("method", "WEBSOCKET"), scope["path"]
        if method == "POST" and path == f"{API}/upload":
            answer = await self._upload(Request(scope, receive))
        elif method in ("GET", "HEAD") and (take := TAKE.fullmatch(unquote(path))):
            # gradio_client asks for a take by the address that an endpoint gave it
            answer = RedirectResponse(f"{self._root_path}/tts/result/{take[1]}")
        elif method == "POST" and path == f"{API}/queue/join":
            return await self._join(scope, receive, send)
        elif PROGRAMS.fullmatch(f"{method} {path}"):
            return await self._program(scope, receive, send)
        elif ROUTES.fullmatch(f"{method} {path}"):
            return await self._first_load(scope, receive, send)
        else:
            raise NotFound("not_found.address")
        await answer(scope, receive, send)

    async def _upload(self, request: Request) -> Response:
        """Answer as Gradio does: a list of paths, one for each file."""
        paths = []
        async with request.form(max_files=1, max_fields=4) as form:
            for file in form.getlist("files"):
                if isinstance(file, str):
                    raise BadInput("bad_input.no_file", param="files")
                data = await file.read()
                paths.append(
                    self._uploads.add(request.scope["kk_owner"], file.filename or "", data)
                )
        return JSONResponse(paths)

    async def _program(self, scope, receive, send) -> None:
        """A call of a named endpoint, or a message to the MCP server. Neither may name a file."""
        body = await Request(scope, receive).body()
        event = parse_event(body)
        if named_files(event):
            raise NotAllowed("no_path.page")
        if scope["path"].rstrip("/").endswith("/predict") and not self._is_named(event):
            raise NotFound("not_found.endpoint", param="fn_index")
        await self._app(scope, self._replay(event, receive), send)

    def _is_named(self, event: dict) -> bool:
        """Whether it calls one of the named endpoints."""
        index = event.get("fn_index")
        function = self._blocks.fns.get(index) if isinstance(index, int) else None
        return function is not None and function.api_name in endpoints.NAMES

    @staticmethod
    def _replay(event: dict, receive):
        """The event written anew, so that Gradio reads nothing else than what was checked."""
        body = json.dumps(event).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay():
            return next(messages, None) or await receive()

        return replay

    async def _join(self, scope, receive, send) -> None:
        owner, body = scope["kk_owner"], await Request(scope, receive).body()
        event = parse_event(body)
        for path in named_files(event):
            self._uploads.get(owner, path)
        if str(event.get("fn_index")) not in map(str, self._blocks.fns):
            raise NotFound("not_found.event", param="fn_index")
        key = scope["kk_key"]
        if key is not None and ADMIN not in key.scopes and not self._is_named(event):
            raise NotAllowed("scope.page")
        answer = bytearray()

        async def watch(message) -> None:
            if message["type"] == "http.response.body":
                answer.extend(message.get("body", b""))
            await send(message)

        self._events.join(owner)
        try:
            await self._app(scope, self._replay(event, receive), watch)
        finally:
            self._events.joined(owner, str(event.get("session_hash")), event_id_of(bytes(answer)))


def event_id_of(answer: bytes) -> str:
    """The id in Gradio's answer to a request to join; "" when it refused."""
    try:
        return str(json.loads(answer).get("event_id", ""))
    except (ValueError, AttributeError):
        return ""
