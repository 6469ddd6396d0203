"""What a first visit has to fetch: the page packed, Gradio's hashed files kept by the browser, and
nothing in place of the one that no part of this page ever calls. Pure ASGI around Gradio's app.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import lru_cache

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response

KEPT = "public, max-age=31536000, immutable"  # Vite names each of these files after its content
# it serves pages inside a frame of another site, which the page's own policy forbids
UNUSED = re.compile(r"/static/js/iframeResizer[\w.]*\.js")


class FirstLoad:
    def __init__(self, app, scripts: str):
        """`scripts`: HTML for <head>. What Gradio is given as `head=` is put there by its own
        script, too late for modules that must run before it.
        """
        self._app, self._scripts = app, scripts.encode()

    async def __call__(self, scope, receive, send) -> None:
        path = scope["path"]
        if scope["method"] == "GET" and path == "/":
            return await self._page(scope, receive, send)
        if UNUSED.fullmatch(path):
            answer = Response("", 200, {"Cache-Control": KEPT}, "text/javascript")
            return await answer(scope, receive, send)

        async def keep(message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                MutableHeaders(scope=message)["Cache-Control"] = KEPT
            await send(message)

        await self._app(scope, receive, keep if path.startswith("/assets/") else send)

    async def _page(self, scope, receive, send) -> None:
        """Packed once for all visitors who get the same, and not sent again to whoever has it
        already.
        """
        start, body = {}, bytearray()

        async def collect(message) -> None:
            start.update(message) if message["type"] == "http.response.start" else None
            body.extend(message.get("body", b""))

        await self._app(scope, receive, collect)
        body = bytes(body).replace(b"<base ", self._scripts + b"<base ", 1)
        headers = MutableHeaders(raw=[h for h in start["headers"] if h[0] != b"content-length"])
        request_headers = Request(scope).headers
        if start["status"] != 200 or "gzip" not in request_headers.get("accept-encoding", ""):
            answer = Response(body, start["status"])
        else:
            packed, tag = await run_in_threadpool(pack, body)
            is_known = request_headers.get("if-none-match") == tag
            answer = Response(b"" if is_known else packed, 304 if is_known else 200)
            headers.update({"Content-Encoding": "gzip", "Cache-Control": "no-cache", "ETag": tag})
            headers.add_vary_header("Accept-Encoding")
        answer.raw_headers += headers.raw
        await answer(scope, receive, send)


@lru_cache(maxsize=8)  # a page differs by the address it is asked at
def pack(body: bytes) -> tuple[bytes, str]:
    """The page compressed, and the tag that a browser says it has it by."""
    return gzip.compress(body, mtime=0), f'"{hashlib.sha256(body).hexdigest()[:24]}"'
