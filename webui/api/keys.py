"""/v1/keys: API keys made, listed with what they used, and revoked.

JSON <-> studio, no decisions.
"""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from ..settings import Settings
from ..studio import SCOPES, Key, Studio, Used
from . import schemas
from .auth import FIRST, Sessions
from .fields import JsonBody
from .openapi import answers, refusals


class NewKey(JsonBody):
    name: str = Field(max_length=1000)
    scopes: list[Literal["speak", "voices", "jobs", "admin"]] = Field(["speak"], max_length=20)
    per_minute: int = Field(600, ge=-(1 << 31), le=1 << 31)


def usage_info(used: Used) -> dict:
    return {
        "requests": used.requests,
        "characters": used.chars,
        "audio_s": round(used.sound_s, 2),
        "last_used_at": None if used.last_used_at is None else int(used.last_used_at),
    }


def key_info(key: Key, used: Used) -> dict:
    return {
        "id": key.id,
        "object": "key",
        "name": key.name,
        "scopes": list(key.scopes),
        "per_minute": key.per_minute,
        "created_at": int(key.created_at),
        "revoked_at": None if key.revoked_at is None else int(key.revoked_at),
        "usage": usage_info(used),
    }


def routes(studio: Studio, settings: Settings, sessions: Sessions) -> APIRouter:
    router, keys = APIRouter(), studio.keys

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    @router.get("/v1/keys", responses={**answers(200, of=schemas.KeyList), **refusals(503, 507)})
    def every(request: Request):
        used = studio.usage.totals()
        return {
            "object": "list",
            "data": [key_info(k, used.get(k.id, Used())) for k in keys.list(owner(request))],
            "scopes": SCOPES,
            "are_on": not sessions.is_open(),
        }

    @router.post(
        "/v1/keys",
        status_code=201,
        responses={**answers(201, of=schemas.KeyMade), **refusals(422, 503, 507)},
    )
    def create(body: NewKey, request: Request):
        """The answer holds the key itself, this one time.

        The browser that makes the first key of an open studio stays logged in.
        """
        was_open = sessions.is_open()
        key, secret = keys.create(owner(request), body.name, body.scopes, body.per_minute)
        answer = JSONResponse(
            {**key_info(key, Used()), "key": secret}, 201, {"Cache-Control": "no-store"}
        )
        if was_open:
            secure = (
                request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
            )
            answer.headers["Set-Cookie"] = sessions.holder_cookie(
                FIRST, settings.server.root_path, secure
            )
        return answer

    @router.delete("/v1/keys/{key_id}", status_code=204, responses=refusals(404, 503, 507))
    def revoke(key_id: str, request: Request):
        request.scope["kk_holder"].listen(None)  # a key that ends itself still hears that it did
        keys.revoke(owner(request), key_id)
        return Response(status_code=204)

    return router
