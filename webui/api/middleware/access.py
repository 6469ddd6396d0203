"""The one door: every request to the page, to Gradio's routes and to ours passes here.

Host, Origin, login, keys, demo links, body, headers.

Pure ASGI, so that streams pass untouched. Puts into the scope: kk_owner ("account/visit"), kk_key
(or None), kk_by_key (it came with the request, not with a login), kk_demo (id of a link, or ""),
kk_login (of a login, or ""), kk_holder (of the right that let it in) and kk_request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from urllib.parse import urlsplit

from ...errors import KaikouError, LoginNeeded, NotAllowed, NotFound, TooManyHeaders
from ...logs import REQUEST_ID, request_id
from ...settings import Settings, is_loopback
from ...studio import Studio
from .. import permissions
from ..auth import Sessions, cookies_of
from ..door import BLANK_SCOPE, Door, owner_of
from .body_limit import BATCH_BODY, GUEST_BODY, SMALL_BODY, LimitedBody, too_large

log = logging.getLogger(__name__)
UPLOADS = (
    "/gradio_api/upload",
    "/v1/audio/voices",
    "/v1/audio/voice_consents",
    "/v1/audio/speech",
    "/inference_",
    "/gradio_api/api/",
    "/gradio_api/run/",
    "/gradio_api/mcp",
)  # clips; speech may bring one with it
BATCH = "/v2/synthesize/batch"
MAX_HEADERS, MAX_HEADER_BYTES = 200, 64 << 10
DEMO = "/d/"
# what lies below /d/{token}: our own routes, by these alone
GUESTS = re.compile(
    r"GET /tts/static/[^/]+/[^/]+/[^/]+|POST /tts/session|POST /tts/cancel/[^/]+|POST"
    r" /v1/audio/speech|WEBSOCKET /tts/ws"
)
FOREIGN = (b"cross-site", b"same-site")  # values of Sec-Fetch-Site
PAGES = re.compile(r"/|/login|/d/[^/]+")  # what a link on another site may lead to: they only show
FRAMED = (b"iframe", b"frame", b"embed", b"object")  # values of Sec-Fetch-Dest
HOST = re.compile(r"([\w.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{1,5})?", re.ASCII)
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"same-origin")]
CSP = (
    b"content-security-policy",
    (
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; connect-src 'self' ws: wss:"
        b" blob: data:; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
    ),
)
QUIET = (
    "/tts/static/{version}/{folder}/{name}",
    "/tts/health",
    "/health/live",
    "/health/ready",
    "/metrics",
)  # asked too often to be worth a line
AREAS = (
    ("/v1/audio/speech", "speech"),
    ("/v1/audio/takes", "speech"),
    ("/tts/ws", "speech"),
    ("/inference_", "speech"),
    ("/v1/audio/", "voices"),
    ("/v1/pronunciations", "voices"),
    ("/v1/text/", "speech"),
    ("/v2/", "jobs"),
    ("/v1/keys", "access"),
    ("/v1/demos", "access"),
    ("/login", "access"),
    (DEMO, "demo"),
    ("/v1/", "other"),
    ("/tts", "other"),
    ("/health", "other"),
    ("/metrics", "other"),
)


def area_of(path: str) -> str:
    """One of a closed set, for a label."""
    return (
        "speech"
        if path == "/tts"
        else next((area for start, area in AREAS if path.startswith(start)), "page")
    )


class AccessMiddleware:
    def __init__(self, app, settings: Settings, sessions: Sessions, studio: Studio, door: Door):
        self._app, self._settings, self._sessions, self._studio = app, settings, sessions, studio
        self._root, self._door = settings.server.root_path, door

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        headers, began_s = dict(scope["headers"]), time.perf_counter()
        scope["kk_request"] = request_id(headers.get(b"x-request-id", b"").decode("latin-1"))
        REQUEST_ID.set(scope["kk_request"])
        scope |= BLANK_SCOPE
        path = self._strip_root(scope)
        counted_send = _CountedSend(send)
        try:
            await self._pass(scope, receive, counted_send, headers, path)
        except Exception:
            counted_send.status = (
                counted_send.status or 500
            )  # answered further out, where the guard does not see it
            raise
        finally:
            self._write_down(scope, path, counted_send.status, time.perf_counter() - began_s)

    async def _pass(self, scope, receive, send, headers, path: str) -> None:
        try:
            self._check_headers(scope)
            self._check_origin(scope, headers)
            visit = await asyncio.get_running_loop().run_in_executor(
                self._door.threads, self._let_in, scope, headers, path
            )
            limit = self._body_limit(scope, headers)
            with self._door.holder(scope) as holder:
                scope["kk_holder"] = holder
                cookie = self._cookie(visit, scope, headers)
                if scope["type"] == "http":
                    await self._answer(scope, receive, send, headers, limit, cookie)
                else:
                    with self._door.sockets.one_more(scope):
                        await self._app(scope, receive, self._dress(scope, send, cookie))
        except KaikouError as error:  # those of the app are answered there
            await self._refuse(scope, receive, send, headers, error)

    async def _answer(self, scope, receive, send, headers, limit: int, cookie: str) -> None:
        """A request of HTTP.

        It ends when the right ends that it came in by, whatever it was doing; a shortened answer
        must not pass for a whole one.
        """

        async def refuse(send, error: KaikouError) -> None:
            await _reply(
                send,
                error.status,
                error_body(error, language_of(headers)),
                [(b"content-type", b"application/json"), (b"connection", b"close"), *_own(scope)],
            )

        body, holder = (
            LimitedBody(receive, send, limit, self._settings.limits.body_s, refuse),
            scope["kk_holder"],
        )
        holder.listen(asyncio.current_task().cancel)
        try:
            await self._app(scope, body.receive, self._dress(scope, body.send, cookie))
        except asyncio.CancelledError:
            if holder.error is None:
                raise
            asyncio.current_task().uncancel()
            if body.is_started:
                raise RightEnded(holder.error.code) from None
            raise holder.error from None

    def _strip_root(self, scope) -> str:
        """A proxy may or may not cut the sub-path off; both reach the same route."""
        path = scope["path"]
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            path = scope["path"] = path[len(self._root) :] or "/"
            scope["raw_path"] = path.encode()
        return path

    # ---- who may come in -------------------------------------------------------------------------
    def _check_headers(self, scope) -> None:
        if (
            len(scope["headers"]) > MAX_HEADERS
            or sum(len(k) + len(v) for k, v in scope["headers"]) > MAX_HEADER_BYTES
        ):
            raise TooManyHeaders("too_many_headers")

    def _check_host(self, headers) -> None:
        """Without a login only loopback names are served: a foreign name that resolves here (DNS
        rebinding) gets nothing. What is no name at all gets nothing anywhere: addresses are made of
        it.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        name = name_of_host(host)
        if host and not name:
            raise NotAllowed("bad_host.impossible")
        if not is_loopback(name) and self._sessions.is_open():
            raise NotAllowed("bad_host.only_local")

    def _check_origin(self, scope, headers) -> None:
        """Browsers name the site that a request comes from.

        A page of another port of this host is another's too: it may link to ours and nothing more.
        """
        if headers.get(b"sec-fetch-site") in FOREIGN and not _is_visit(scope, headers):
            raise _foreign()
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin:
            return
        hosts = {
            headers.get(k, b"").decode("latin-1").lower() for k in (b"host", b"x-forwarded-host")
        } - {""}
        if (
            origin.partition("://")[2].lower() not in hosts
        ):  # as browsers write it: scheme and host, nothing behind them
            raise _foreign()

    def _guest(self, scope, path: str) -> bool:
        """True when the request came by a demo link: then the path is one of ours, for the link's
        guest. No cookie is needed, so that it works inside another site's page.
        """
        token, slash, rest = path.removeprefix(DEMO).partition("/")
        if not path.startswith(DEMO) or not slash:
            return False
        rest = "/" + rest
        if not GUESTS.fullmatch(f"{scope.get('method', 'WEBSOCKET')} {rest}"):
            raise NotFound("not_found.address")
        demo = self._studio.share_links.open(self._sessions.demo_of(token))
        visit = secrets.token_hex(8) if rest == "/tts/session" else "guest"
        scope |= {
            "kk_owner": f"{demo.id}/{visit}",
            "kk_demo": demo.id,
            "path": rest,
            "raw_path": rest.encode(),
        }
        self._studio.usage.count_request(demo.id)
        return True

    def _let_in(self, scope, headers, path: str) -> str:
        """Blocking.

        Returns the id of a visit that gets its cookie, "" for none. Raises every refusal that
        depends on who asks.
        """
        self._check_host(headers)
        return "" if self._guest(scope, path) else self._identify(scope, headers, path)

    def _identify(self, scope, headers, path: str) -> str:
        """Returns the id of the visit when a page is opened, a new one where there is none."""
        cookies, method = cookies_of(headers), scope.get("method", "GET")
        caller = self._door.identify(
            scope,
            cookies,
            headers.get(b"authorization", b"").decode("latin-1"),
            None if permissions.is_free(path) else permissions.needed(method, path),
        )
        visit, fresh = self._sessions.visit_of(cookies), ""
        if not visit and path in ("/", "/tts/session"):
            visit = fresh = self._sessions.new_visit()
        elif path == "/":
            fresh = visit  # its cookie begins anew: a browser that comes back keeps its takes
        scope["kk_owner"] = owner_of(caller, visit)
        return fresh

    def _body_limit(self, scope, headers) -> int:
        path = scope["path"]
        limit = (
            GUEST_BODY
            if scope["kk_demo"]
            else (
                self._upload_mb(headers) << 20
                if path.startswith(UPLOADS) or path == "/tts"
                else BATCH_BODY
                if path == BATCH
                else SMALL_BODY
            )
        )
        content_length = headers.get(b"content-length", b"0")
        if not content_length.isdigit() or int(content_length) > limit:
            raise too_large(limit)
        return limit

    def _upload_mb(self, headers) -> int:
        """A file comes to the disk while it is read; JSON is held in memory several times over, so
        it may have less.
        """
        is_form = headers.get(b"content-type", b"").startswith(b"multipart/form-data")
        limits = self._settings.limits
        return limits.max_upload_mb if is_form else limits.max_body_mb

    def _cookie(self, visit: str, scope, headers) -> str:
        return (
            self._sessions.visit_cookie(visit, self._root, self._is_secure(scope, headers))
            if visit
            else ""
        )

    # ---- what goes out ---------------------------------------------------------------------------
    def _is_secure(self, scope, headers) -> bool:
        return (
            scope.get("scheme") in ("https", "wss") or headers.get(b"x-forwarded-proto") == b"https"
        )

    def _dress(self, scope, send, cookie: str):
        async def dressed(message):
            if message.get("more_body") or message["type"] == "websocket.send":  # a piece of many
                scope["kk_holder"].glance()
            if message["type"] in ("http.response.start", "websocket.accept"):
                headers = [
                    (k, v)
                    for k, v in message.get("headers", [])
                    if not k.lower().startswith(b"access-control-")
                ]
                own = _own(scope) if message["type"] == "http.response.start" else _own(scope)[:1]
                named = {k.lower() for k, _ in headers}
                message = {
                    **message,
                    "headers": (
                        headers
                        + [(k, v) for k, v in own if k not in named]
                        + ([(b"set-cookie", cookie.encode())] if cookie else [])
                    ),
                }
            await send(message)

        return dressed

    async def _refuse(self, scope, receive, send, headers, error: KaikouError) -> None:
        self._studio.metrics.count_turned_away(error)
        if scope["type"] == "websocket":
            await receive()
            return await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        wants_page = b"text/html" in headers.get(b"accept", b"") and scope["method"] == "GET"
        if isinstance(error, LoginNeeded) and wants_page:
            return await _reply(
                send, 303, b"", [(b"location", f"{self._root}/login".encode()), *_own(scope)]
            )
        more = [(b"www-authenticate", b"Bearer")] if isinstance(error, LoginNeeded) else []
        if error.retry_after_s is not None:
            more.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
        await _reply(
            send,
            error.status,
            error_body(error, language_of(headers)),
            [(b"content-type", b"application/json"), *more, *_own(scope)],
        )

    def _write_down(self, scope, path: str, status: int, seconds: float) -> None:
        """Routes by their pattern, who by the id of the key or link: addresses hold ids, and ids
        open things.
        """
        if path != "/metrics":  # looking at the figures does not change them
            self._studio.metrics.count_answer(area_of(path), status)
        route = getattr(scope.get("route"), "path", "") or f"({area_of(path)})"
        if area_of(path) == "page" or route in QUIET:
            return
        key = scope["kk_key"]
        log.info(
            "request=%s %s %s status=%d ms=%.1f by=%s",
            scope["kk_request"],
            scope.get("method", "WEBSOCKET"),
            route,
            status,
            1000 * seconds,
            scope["kk_demo"] or (key.id if key else "-"),
        )


class RightEnded(Exception):
    """Ends the connection abnormally."""


def _foreign() -> NotAllowed:
    return NotAllowed("bad_origin")


def _is_visit(scope, headers) -> bool:
    """A browser opens one of our pages: as a document of its own, or, of a demo link, in a frame.

    Some of our other addresses speak when they are asked for.
    """
    path, kind = scope["path"], headers.get(b"sec-fetch-dest")
    return (
        scope.get("method") == "GET"
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and PAGES.fullmatch(path) is not None
        and (kind == b"document" or (kind in FRAMED and path.startswith(DEMO)))
    )


def name_of_host(host: str) -> str:
    """Of a Host header, without its port; "" for what is none."""
    try:
        return urlsplit(f"//{host}").hostname or "" if HOST.fullmatch(host) else ""
    except ValueError:  # brackets around what is no address
        return ""


class _CountedSend:
    """`send`, and the status that went through it."""

    def __init__(self, send):
        self._send, self.status = send, 0

    async def __call__(self, message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "websocket.accept":
            self.status = 101
        elif message["type"] == "websocket.close" and not self.status:
            self.status = 403
        await self._send(message)


def _own(scope) -> list[tuple[bytes, bytes]]:
    """The headers that every answer has; a route may say its own policy."""
    return [(b"x-request-id", scope["kk_request"].encode()), *HEADERS, CSP]


def language_of(headers: dict[bytes, bytes]) -> str:
    return "zh" if headers.get(b"accept-language", b"").strip().lower().startswith(b"zh") else "en"


def error_body(error: KaikouError, language: str) -> bytes:
    details = {
        "message": error.sentence(language),
        "type": error.kind,
        "param": error.param,
        "code": error.code,
        "sentences": {"en": error.en, "zh": error.zh},
    }
    return json.dumps({"error": details}, ensure_ascii=False).encode()


async def _reply(send, status: int, body: bytes, headers: list) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})
