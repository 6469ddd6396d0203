"""/v1/pronunciations: the dictionary of an account over HTTP, entry by entry and as a file.

JSON <-> studio, no decisions.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from ..errors import BadInput
from ..studio import TERM_FILES, TERM_LIMITS, Studio
from . import schemas
from .fields import JsonBody
from .openapi import answers, file_of, refusals

FILE = {"requestBody": {"required": True, "content": file_of(*TERM_FILES.values())}}


class Was(JsonBody):
    term: str
    language: str = ""


class Entry(JsonBody):
    term: str
    reading: str
    language: str = ""
    was: Was | None = None  # the entry whose place it takes


def term_info(entry) -> dict:
    return {"term": entry.term, "reading": entry.reading, "language": entry.language}


def routes(studio: Studio) -> APIRouter:
    router, words = APIRouter(), studio.pronunciations

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    @router.get(
        "/v1/pronunciations", responses={**answers(200, of=schemas.TermList), **refusals(500, 507)}
    )
    def every(request: Request):
        return {
            "data": [term_info(e) for e in words.list(owner(request))],
            "limits": TERM_LIMITS,
            "notice": words.notice(),
        }

    @router.put(
        "/v1/pronunciations",
        responses={**answers(200, of=schemas.TermInfo), **refusals(404, 422, 500, 507)},
    )
    def put(body: Entry, request: Request):
        was = (body.was.term, body.was.language) if body.was else None
        return term_info(words.put(owner(request), body.term, body.reading, body.language, was))

    @router.delete("/v1/pronunciations", status_code=204, responses=refusals(404, 422, 500, 507))
    def delete(request: Request, term: str | None = None, language: str = "", all: bool = False):
        if all:
            words.clear(owner(request))
        elif term is None:
            raise BadInput("bad_field.which_term", param="term")
        else:
            words.delete(owner(request), term, language)
        return Response(status_code=204)

    @router.get(
        "/v1/pronunciations.{kind}",
        response_class=Response,
        responses={
            **answers(200, content=file_of(*TERM_FILES.values())),
            **refusals(404, 422, 500, 507),
        },
    )
    def file(kind: str, request: Request):
        headers = {
            "Content-Disposition": f'attachment; filename="pronunciations.{kind}"',
            "Cache-Control": "no-store",
        }
        data = words.file(owner(request), kind)
        return Response(data, 200, headers, f"{TERM_FILES[kind]}; charset=utf-8")

    @router.post(
        "/v1/pronunciations.{kind}",
        openapi_extra=FILE,
        responses={**answers(200, of=schemas.TermsTaken), **refusals(404, 422, 500, 507)},
    )
    async def add(kind: str, request: Request):
        return await take_in(kind, request, replace=False)

    @router.put(
        "/v1/pronunciations.{kind}",
        openapi_extra=FILE,
        responses={**answers(200, of=schemas.TermsTaken), **refusals(404, 422, 500, 507)},
    )
    async def replace(kind: str, request: Request):
        return await take_in(kind, request, replace=True)

    async def take_in(kind: str, request: Request, replace: bool) -> dict:
        data = await request.body()  # the guard ends it at 1 MiB
        added, changed = await run_in_threadpool(
            lambda: words.take_in(owner(request), data, kind, replace)
        )
        return {"added": added, "changed": changed}

    return router
