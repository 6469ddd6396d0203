"""POST /v1/text/prepare: what will be spoken of a text, without speaking it.

JSON <-> studio, no decisions.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field

from ..studio import Studio
from ..types import LANGUAGES, MAX_TEXT
from . import schemas
from .fields import JsonBody
from .openapi import answers, refusals


class Asked(JsonBody):
    text: str = Field(json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT})
    language: str = Field(
        "auto", description=f"`auto`, or a BCP 47 tag of one of: {', '.join(LANGUAGES)}"
    )
    model: str = Field("auto", description="As in `POST /v1/audio/speech`")


def routes(studio: Studio) -> APIRouter:
    router = APIRouter()

    @router.post(
        "/v1/text/prepare",
        responses={**answers(200, of=schemas.PreparedText), **refusals(404, 422, 503)},
    )
    def prepare(body: Asked, request: Request):
        """The segments, as the model that speaks wants them cut, with numbers, dates and the like
        written out and marks taken away.
        """
        preview = studio.synthesis.preview(
            request.scope["kk_owner"], body.text, body.language[:17], body.model
        )
        return {
            "segments": [
                {"text": text, "language": language} for text, language in preview.segments
            ],
            "characters": preview.characters,
            "sentences": preview.sentences,
            "seconds": preview.seconds,
        }

    return router
