"""The one door: every request to the page, to Gradio's routes and to ours passes here. Host, Origin, login, body size, headers.

Pure ASGI, so that streams pass untouched. Puts the owner into scope["kk_owner"] as "account/visit".
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from ..errors import KaikouError, LoginNeeded, NotAllowed, TooLarge
from ..settings import Settings, is_loopback
from .session import Sessions, cookies_of

FREE = ("/login", "/health/live", "/tts/static/")  # no login needed
UPLOADS = ("/gradio_api/upload", "/v1/audio/voices", "/v1/audio/voice_consents", "/v1/audio/speech")  # clips; speech may bring one with it
SMALL_BODY = 1 << 20
BATCH, BATCH_BODY = "/v2/synthesize/batch", 16 << 20
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"same-origin"),
           (b"content-security-policy", b"default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; connect-src 'self' ws: wss: blob: data:; object-src 'none'; base-uri 'self'")]


class Guard:
    def __init__(self, app, settings: Settings, sessions: Sessions):
        self._app, self._settings, self._sessions = app, settings, sessions
        self._root = settings.server.root_path

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        headers = dict(scope["headers"])
        path = self._strip_root(scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            new_visit = self._identify(scope, headers, path)
            limit = self._body_limit(scope, headers, path)
        except KaikouError as error:
            return await self._refuse(scope, receive, send, headers, error)
        body = _Body(receive, send, limit, language_of(headers))
        cookie = self._sessions.visit_cookie(new_visit, self._root, self._is_secure(scope, headers)) if new_visit else ""
        await self._app(scope, body.receive, self._dress(body.send, cookie))

    def _strip_root(self, scope) -> str:
        """A proxy may or may not cut the sub-path off; both reach the same route."""
        path = scope["path"]
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            path = scope["path"] = path[len(self._root):] or "/"
            scope["raw_path"] = path.encode()
        return path

    def _check_host(self, headers) -> None:
        """Without a login only loopback names are served: a foreign name that resolves here (DNS rebinding) gets nothing."""
        host = headers.get(b"host", b"").decode("latin-1")
        name = urlsplit(f"//{host}").hostname or ""
        if self._settings.server.is_open and not is_loopback(name):
            raise NotAllowed("This studio answers only on this machine. Open it as 127.0.0.1 or localhost.", "本工作室只在本机应答，请用 127.0.0.1 或 localhost 打开。", code="bad_host")

    def _check_origin(self, headers) -> None:
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin:
            return
        hosts = {headers.get(k, b"").decode("latin-1").lower() for k in (b"host", b"x-forwarded-host")} - {""}
        if urlsplit(origin).netloc.lower() not in hosts:
            raise NotAllowed("Another site tried to use this studio; that is not allowed.", "其他网站试图调用本工作室，已拒绝。", code="bad_origin")

    def _identify(self, scope, headers, path: str) -> str:
        """Returns the id of a new visit when a page is opened without one."""
        cookies = cookies_of(headers)
        account = self._sessions.account(cookies, headers.get(b"authorization", b"").decode("latin-1"))
        if not account:
            if not path.startswith(FREE):
                raise LoginNeeded("Please log in, or send an API key.", "请先登录，或提供 API 密钥。")
            account = "nobody"
        visit, fresh = self._sessions.visit_of(cookies), ""
        if not visit and path in ("/", "/tts/session"):
            visit = fresh = self._sessions.new_visit()
        scope["kk_owner"] = f"{account}/{visit or 'api'}"
        return fresh

    def _body_limit(self, scope, headers, path: str) -> int:
        limit = self._settings.limits.max_body_mb << 20 if path.startswith(UPLOADS) else BATCH_BODY if path == BATCH else SMALL_BODY
        told = headers.get(b"content-length", b"0")
        if not told.isdigit() or int(told) > limit:
            raise too_large(limit)
        return limit

    def _is_secure(self, scope, headers) -> bool:
        return scope.get("scheme") in ("https", "wss") or headers.get(b"x-forwarded-proto") == b"https"

    def _dress(self, send, cookie: str):
        async def dressed(message):
            if message["type"] == "http.response.start":
                kept = [(k, v) for k, v in message.get("headers", []) if not k.lower().startswith(b"access-control-")]
                message = {**message, "headers": kept + HEADERS + ([(b"set-cookie", cookie.encode())] if cookie else [])}
            await send(message)
        return dressed

    async def _refuse(self, scope, receive, send, headers, error: KaikouError) -> None:
        if scope["type"] == "websocket":
            await receive()
            return await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        wants_page = b"text/html" in headers.get(b"accept", b"") and scope["method"] == "GET"
        if isinstance(error, LoginNeeded) and wants_page:
            return await _reply(send, 303, b"", [(b"location", f"{self._root}/login".encode())])
        await _reply(send, error.status, error_body(error, language_of(headers)), [(b"content-type", b"application/json")])


class _Body:
    """Counts the body while it is read; past the limit answers 413 itself and ends the request for the app."""

    def __init__(self, receive, send, limit: int, language: str):
        self._receive, self._send, self._limit, self._language = receive, send, limit, language
        self._seen, self._is_started, self._is_cut = 0, False, False

    async def receive(self):
        if self._is_cut:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._limit:
                self._is_cut = True
                if not self._is_started:
                    await _reply(self._send, 413, error_body(too_large(self._limit), self._language), [(b"content-type", b"application/json"), (b"connection", b"close")])
                return {"type": "http.disconnect"}
        return message

    async def send(self, message):
        if self._is_cut and not self._is_started:
            return
        self._is_started = self._is_started or message["type"] == "http.response.start"
        await self._send(message)


def too_large(limit: int) -> TooLarge:
    if limit <= SMALL_BODY:
        return TooLarge("The request is too large.", "请求太大了。", code="body_too_large")
    if limit == BATCH_BODY:
        return TooLarge("The batch is over 16 MB. Split it.", "这一批超过 16 MB，请拆开。", code="body_too_large")
    return TooLarge("The file is over 10 MB or 60 s. Trim it and try again.", "文件超过 10 MB 或 60 秒。请裁短后再传。")


def language_of(headers: dict[bytes, bytes]) -> str:
    return "zh" if headers.get(b"accept-language", b"").strip().lower().startswith(b"zh") else "en"


def error_body(error: KaikouError, language: str) -> bytes:
    told = {"message": error.sentence(language), "type": error.kind, "param": error.param, "code": error.code}
    return json.dumps({"error": told}, ensure_ascii=False).encode()


async def _reply(send, status: int, body: bytes, headers: list) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"content-length", str(len(body)).encode()), *HEADERS]})
    await send({"type": "http.response.body", "body": body})
