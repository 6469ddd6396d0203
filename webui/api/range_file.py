"""A file that can be asked for in parts, whose refusals have the shape of all others."""

from __future__ import annotations

from fastapi.responses import FileResponse
from starlette.requests import Request

from ..errors import NoSuchPart
from .error_handlers import answer


class RangeFile(FileResponse):
    """FileResponse answers a Range that it cannot serve in plain text; this one by name, with the
    length that there is.
    """

    async def __call__(self, scope, receive, send) -> None:
        is_refused = False

        async def named(message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] in (400, 416):
                is_refused = True
                response = answer(Request(scope), NoSuchPart("bad_range", param="Range"))
                response.raw_headers += [
                    (k, v) for k, v in message["headers"] if k == b"content-range"
                ]
                await response(scope, receive, send)
            elif not is_refused:
                await send(message)

        await super().__call__(scope, receive, named)
