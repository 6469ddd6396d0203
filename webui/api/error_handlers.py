"""Named errors as HTTP answers, the same shape for every route."""

from __future__ import annotations

import json
import logging

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..errors import BadBody, BadInput, KaikouError, NotFound
from .middleware.access import error_body, language_of

log = logging.getLogger(__name__)


def answer(request: Request, error: KaikouError) -> Response:
    headers = (
        {"Retry-After": str(max(1, round(error.retry_after_s)))}
        if error.retry_after_s is not None
        else {}
    )
    headers["X-Request-Id"] = request.scope.get(
        "kk_request", ""
    )  # what the guard never sees, the answer to a fault of ours, has it too
    return Response(
        error_body(error, language_of(dict(request.headers.raw))),
        error.status,
        headers,
        "application/json",
    )


def wrong_field(error: RequestValidationError) -> BadInput:
    first = error.errors()[0]
    name = ".".join(str(p) for p in first["loc"] if p not in ("body", "query", "path")) or "body"
    if first["type"] in ("json_invalid", "json_type"):
        return BadInput("bad_json.request")
    return BadInput("bad_field.invalid", reason=first["msg"], param=name)


def unreadable() -> BadBody:
    return BadBody("bad_body")


def install(app: FastAPI) -> None:
    @app.exception_handler(KaikouError)
    async def named(request: Request, error: KaikouError):
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError):
        return answer(request, wrong_field(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException):
        if error.status_code == 404:
            return answer(request, NotFound("not_found.address"))
        if error.status_code == 400:
            return answer(request, unreadable())
        details = {
            "message": str(error.detail),
            "type": "invalid_request_error",
            "param": None,
            "code": f"http_{error.status_code}",
        }
        return Response(
            json.dumps({"error": details}),
            error.status_code,
            dict(error.headers or {}),
            "application/json",
        )

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(request: Request, error: ClientDisconnect):
        return Response(
            status_code=400
        )  # nobody reads it: the sender left, or the guard has answered already

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception):
        log.exception(
            "unexpected failure at %s",
            getattr(request.scope.get("route"), "path", "an unknown route"),
        )
        return answer(request, KaikouError("fault.unexpected"))
