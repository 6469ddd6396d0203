"""GPT-SoVITS' /tts (its api_v2): GET and POST, its fields, its error shape.

Where it takes a path on the server, a saved voice or an upload stands here.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from ...errors import BadInput, KaikouError
from ...studio import SpeechJob, Studio, open_job
from ...types import MAX_TRANSCRIPT
from ..audio_field import sound_in
from ..encoding import EncoderPool
from ..error_handlers import unreadable, wrong_field
from ..middleware.access import language_of
from ..openapi import ERROR, JSON, file_of, refusals
from ..recent_jobs import RecentJobs
from ..speech_response import OutputOptions, reply
from ..voices import read
from . import voice_named
from .fields import with_field_names

KINDS = {"wav": "wav", "raw": "pcm", "ogg": "opus", "aac": "aac"}  # their media_type -> our format
LANGUAGES = {
    "auto": "auto",
    "zh": "zh",
    "all_zh": "zh",
    "en": "en",
    "ja": "ja",
    "all_ja": "ja",
    "ko": "ko",
    "all_ko": "ko",
    "yue": "yue",
    "all_yue": "yue",
    "auto_yue": "yue",
}
STREAMED = {"false": False, "0": False, "": False, "true": True, "1": True, "2": True, "3": True}
THEIRS = {
    "input": "text",
    "voice": "ref_audio_path",
    "speed": "speed_factor",
    "audio_sample": "ref_audio",
    "reference": "ref_audio",
}
FILES = ("ref_audio", "ref_audio_path")
TOLD = {
    **ERROR,
    "required": ["message", "error"],
    "properties": {"message": {"type": "string"}, **ERROR["properties"]},
}


class Asked(BaseModel):
    """What of api_v2's fields means something here; the others are taken and ignored."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)
    text: str = Field("", description="What to say")
    text_lang: str = Field("auto", description=f"One of: {', '.join(LANGUAGES)}")
    ref_audio_path: str = Field(
        "",
        description=(
            "No path: the id or name of a saved voice, or a data: URL of the recording. In a"
            " multipart request the recording itself may come, as the file `ref_audio`"
        ),
    )
    aux_ref_audio_paths: list[Any] | None = Field(
        None, description="Must be empty: one reference makes a voice here"
    )
    prompt_text: str = Field("", description="What is said in the reference")
    prompt_lang: str = Field("auto", description="As text_lang")
    media_type: str = Field(
        "wav",
        json_schema_extra={"enum": list(KINDS)},
        description="`ogg` holds Opus, `raw` is s16le at the engine's rate",
    )
    streaming_mode: bool | int | str = Field(
        False, description="0 or false: the whole file at once; 1, 2, 3 or true: while it is made"
    )
    speed_factor: float = Field(
        1.0, allow_inf_nan=False, json_schema_extra={"minimum": 0.25, "maximum": 4}
    )
    seed: int = Field(-1, ge=-1, lt=2**63)
    consent: bool = Field(
        True,
        description=(
            "No field of theirs: who sends a recording says by that that its speaker agreed; false"
            " takes it back"
        ),
    )


def routes(studio: Studio, recent_jobs: RecentJobs) -> APIRouter:
    router, encoder_pool = APIRouter(), EncoderPool(studio)
    answers = {
        200: {"description": "The sound", "content": file_of(*(f"audio/{kind}" for kind in KINDS))},
        400: {
            "description": "Something in the request is wrong, or nothing was found",
            "content": {JSON: {"schema": TOLD}},
        },
    }

    async def speak(request: Request) -> Response:
        language = language_of(dict(request.headers.raw))
        try:
            params, clip = await _read_request(request)
            kind, is_live = _check(params)
            job = await open_job(
                studio, lambda: _open(studio, request.scope["kk_owner"], params, clip)
            )
            recent_jobs.keep(job)
            response = await reply(
                studio, encoder_pool, job, request, OutputOptions(KINDS[kind], is_live)
            )
        except KaikouError as error:
            return _refusal(error, language)
        response.headers["content-type"] = f"audio/{kind}"
        return response

    schema = Asked.model_json_schema()
    parts = {
        **schema,
        "properties": {**schema["properties"], "ref_audio": {"type": "string", "format": "binary"}},
    }
    router.add_api_route(
        "/tts",
        speak,
        methods=["POST"],
        operation_id="tts",
        response_class=Response,
        responses={**refusals(500, 503), **answers},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {JSON: {"schema": schema}, "multipart/form-data": {"schema": parts}},
            }
        },
    )
    router.add_api_route(
        "/tts",
        speak,
        methods=["GET"],
        operation_id="tts_get",
        response_class=Response,
        responses={**refusals(500, 503), **answers},
        openapi_extra={
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "required": name == "text",
                    "schema": {k: v for k, v in field_schema.items() if k != "description"},
                    "description": field_schema.get("description", ""),
                }
                for name, field_schema in schema["properties"].items()
                if name != "aux_ref_audio_paths"
            ]
        },
    )
    return router


async def _read_request(request: Request) -> tuple[Asked, bytes]:
    """The fields, and the recording when it came along. Raises BadInput, TooLarge."""
    clip = b""
    try:
        if request.method == "GET":
            return Asked.model_validate(dict(request.query_params)), clip
        if request.headers.get("content-type", "").startswith(
            ("multipart/", "application/x-www-form-urlencoded")
        ):
            async with request.form(max_files=4, max_fields=60) as form:
                for name in FILES:
                    if isinstance(upload := form.get(name), UploadFile):
                        clip = await read(upload, name)
                return (
                    Asked.model_validate(
                        {
                            k: v
                            for k, v in form.items()
                            if isinstance(v, str) and k != "aux_ref_audio_paths"
                        }
                    ),
                    clip,
                )
        return Asked.model_validate_json(await request.body()), clip
    except ValidationError as error:
        raise wrong_field(error) from None
    except HTTPException:
        raise unreadable() from None


def _check(params: Asked) -> tuple[str, bool]:
    """(media type, is it streamed). Raises BadInput."""
    for name, table in (
        ("text_lang", LANGUAGES),
        ("prompt_lang", LANGUAGES),
        ("media_type", KINDS),
    ):
        if getattr(params, name).lower() not in table:
            raise BadInput("bad_field.one_of", names=table, param=name)
    streamed = str(params.streaming_mode).lower()
    if streamed not in STREAMED:
        raise BadInput("bad_field.streaming_mode", param="streaming_mode")
    if params.aux_ref_audio_paths:
        raise BadInput("bad_field.one_reference", param="aux_ref_audio_paths")
    return params.media_type.lower(), STREAMED[streamed]


def _open(studio: Studio, owner: str, params: Asked, clip: bytes) -> SpeechJob:
    voice = ""
    if not clip and params.ref_audio_path[:5].lower() == "data:":
        clip = sound_in(params.ref_audio_path, "ref_audio_path")
    elif not clip:
        voice = _voice(studio, owner, params.ref_audio_path)
    with with_field_names(THEIRS):
        return studio.synthesis.open(
            owner,
            text_in=params.text,
            voice_id=voice,
            language=LANGUAGES[params.text_lang.lower()],
            speed=params.speed_factor,
            seed=params.seed,
            transcript=params.prompt_text[:MAX_TRANSCRIPT],
            consent=bool(clip) and params.consent,
            reference=clip,
        )


def _voice(studio: Studio, owner: str, voice_name: str) -> str:
    if not voice_name.strip():
        raise BadInput("no_voice.reference_missing", param="ref_audio_path")
    voice_id = voice_named.find(studio, owner, voice_name)
    if voice_id is None:
        raise voice_named.unknown(voice_name, "ref_audio_path", "ref_audio")
    return voice_id


def _refusal(error: KaikouError, language: str) -> Response:
    """Theirs is 400 with a message; a full line and an engine that is not ready keep their own
    status, so that a client may try again.
    """
    message = error.sentence(language)
    body = {
        "message": message,
        "error": {"message": message, "type": error.kind, "param": error.param, "code": error.code},
    }
    headers = (
        {}
        if error.retry_after_s is None
        else {"Retry-After": str(max(1, round(error.retry_after_s)))}
    )
    return JSONResponse(body, 400 if error.status < 429 else error.status, headers)
