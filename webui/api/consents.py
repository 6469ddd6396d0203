"""/v1/audio/voice_consents: recordings in which somebody agrees to the use of their voice.

JSON <-> studio, no decisions.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ..studio import Studio
from ..types import Consent
from .audio_field import with_param
from .fields import JsonBody
from .openapi import answers, refusals
from .voices import read

PATH = "/v1/audio/voice_consents"


class ConsentInfo(BaseModel):
    id: str
    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    name: str
    language: str
    created_at: int


class ConsentList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ConsentInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConsentDeleted(BaseModel):
    id: str
    object: Literal["audio.voice_consent.deleted"] = "audio.voice_consent.deleted"
    deleted: Literal[True] = True


class Rename(JsonBody):
    name: str


def consent_info(consent: Consent) -> ConsentInfo:
    return ConsentInfo(
        id=consent.id,
        name=consent.name,
        language=consent.language,
        created_at=int(consent.created_at),
    )


def routes(studio: Studio) -> APIRouter:
    router, consents = APIRouter(), studio.consents

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    @router.post(PATH, responses={**answers(200, of=ConsentInfo), **refusals(422, 500, 507)})
    async def add(
        request: Request, recording: UploadFile = File(), name: str = Form(), language: str = Form()
    ):
        data = await read(recording, "recording")
        with with_param("recording"):
            return consent_info(
                await run_in_threadpool(consents.add, owner(request), data, name, language)
            )

    @router.get(PATH, responses={**answers(200, of=ConsentList), **refusals(404, 422)})
    def every(request: Request, after: str = "", limit: Annotated[int, Query(ge=1, le=100)] = 20):
        page, has_more = consents.list(owner(request), after, limit)
        return ConsentList(
            data=[consent_info(c) for c in page],
            first_id=page[0].id if page else None,
            last_id=page[-1].id if page else None,
            has_more=has_more,
        )

    @router.get(
        PATH + "/{consent_id}",
        responses={**answers(200, of=ConsentInfo), **refusals(404, 422)},
        name="one",
    )
    def get_consent(consent_id: str, request: Request):
        return consent_info(consents.get(owner(request), consent_id))

    @router.post(
        PATH + "/{consent_id}",
        responses={**answers(200, of=ConsentInfo), **refusals(404, 422, 507)},
    )
    def rename(consent_id: str, body: Rename, request: Request):
        return consent_info(consents.rename(owner(request), consent_id, body.name))

    @router.delete(
        PATH + "/{consent_id}",
        responses={**answers(200, of=ConsentDeleted), **refusals(404, 409, 422, 507)},
    )
    def delete(consent_id: str, request: Request):
        consents.delete(owner(request), consent_id)
        return ConsentDeleted(id=consent_id)

    return router
