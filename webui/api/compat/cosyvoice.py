"""The form routes of CosyVoice's own FastAPI server: /inference_sft, _zero_shot, _cross_lingual,
_instruct, _instruct2. Answers are s16le without a header.

A recording comes with the request, as there, and is kept nowhere. Who sends one says by that that
its speaker agreed: `consent=false` takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData, UploadFile

from ...errors import BadInput
from ...studio import SpeechJob, Studio, open_job
from ...types import MAX_INSTRUCTION, MAX_TEXT, MAX_TRANSCRIPT
from ..encoding import EncoderPool
from ..openapi import file_of, refusals
from ..recent_jobs import RecentJobs
from ..speech_response import OutputOptions, reply
from ..voices import read
from . import voice_named
from .fields import with_field_names

# the speakers of the published CosyVoice-300M-SFT -> ours that come nearest, where no voice has
# that name
SPEAKERS = {
    "中文女": "starter-zh-high",
    "中文男": "starter-zh-low",
    "英文女": "starter-en-bright",
    "英文男": "starter-en-low",
    "日语男": "starter-zh-low",
    "粤语女": "starter-zh-breathy",
    "韩语女": "starter-zh-high",
}
LANGUAGE_OF = {"粤语女": "yue"}
THEIRS = {
    "input": "tts_text",
    "instructions": "instruct_text",
    "voice": "spk_id",
    "audio_sample": "prompt_wav",
    "reference": "prompt_wav",
}


@dataclass(frozen=True)
class Way:
    name: str
    mode: str
    fields: tuple[str, ...]  # besides tts_text
    has_clip: bool


WAYS = (
    Way("sft", "auto", ("spk_id",), False),
    Way("zero_shot", "zero_shot", ("prompt_text",), True),
    Way("cross_lingual", "cross_lingual", (), True),
    Way("instruct", "instruct", ("spk_id", "instruct_text"), False),
    Way("instruct2", "instruct", ("instruct_text",), True),
)


def routes(studio: Studio, recent_jobs: RecentJobs) -> APIRouter:
    router, encoder_pool = APIRouter(), EncoderPool(studio)
    for way in WAYS:
        speak = _route(studio, recent_jobs, encoder_pool, way)
        path = f"/inference_{way.name}"
        router.add_api_route(
            path,
            speak,
            methods=["POST"],
            operation_id=way.name,
            openapi_extra=_body(way),
            response_class=Response,
            responses={
                200: {
                    "description": (
                        "16 bit, little-endian, mono, at the engine's rate; `X-Audio-Format`"
                        " tells it"
                    ),
                    "content": file_of("audio/pcm"),
                },
                **refusals(400, 404, 422, 500, 503),
            },
        )
        router.add_api_route(
            path, speak, methods=["GET"], include_in_schema=False
        )  # with the same body: this is what the published client sends
    return router


def _route(studio: Studio, recent_jobs: RecentJobs, encoder_pool: EncoderPool, way: Way):
    async def speak(request: Request) -> Response:
        async with request.form(max_files=2, max_fields=20) as form:
            params = await _read_params(way, request, form)
        job = await open_job(studio, lambda: _open(studio, request.scope["kk_owner"], way, params))
        recent_jobs.keep(job)
        return await reply(studio, encoder_pool, job, request, OutputOptions("pcm", is_paced=False))

    return speak


async def _read_params(way: Way, request: Request, form: FormData) -> dict:
    """The fields, from the form or the address. Raises BadInput, TooLarge."""
    params: dict = {}
    for name in ("tts_text", *way.fields):
        value = form.get(name, request.query_params.get(name))
        if not isinstance(value, str):
            raise BadInput("bad_field.missing", param=name)
        params[name] = value
    agreed = form.get("consent", request.query_params.get("consent", "true"))
    params["consent"] = str(agreed).lower() in ("true", "1", "yes", "on")
    if way.has_clip:
        params["clip"] = await _clip(form.get("prompt_wav", request.query_params.get("prompt_wav")))
    return params


async def _clip(upload: UploadFile | str | None) -> bytes:
    if isinstance(upload, str) and upload:
        raise BadInput("no_path.prompt_wav", param="prompt_wav")
    data = b"" if not isinstance(upload, UploadFile) else await read(upload, "prompt_wav")
    if not data:
        raise BadInput("bad_field.prompt_wav_missing", param="prompt_wav")
    return data


def _open(studio: Studio, owner: str, way: Way, params: dict) -> SpeechJob:
    speaker = params.get("spk_id", "")
    with with_field_names(THEIRS):
        return studio.synthesis.open(
            owner,
            text_in=params["tts_text"],
            voice_id="" if way.has_clip else _voice(studio, owner, speaker),
            mode=way.mode,
            language=LANGUAGE_OF.get(speaker, "auto"),
            instruction=params.get("instruct_text", ""),
            transcript=params.get("prompt_text", "")[:MAX_TRANSCRIPT],
            consent=way.has_clip and params["consent"],
            reference=params.get("clip", b""),
        )


def _voice(studio: Studio, owner: str, speaker: str) -> str:
    voice_id = voice_named.find(studio, owner, speaker) or SPEAKERS.get(speaker)
    if voice_id is None:
        raise voice_named.unknown(speaker, "spk_id", "prompt_wav of /inference_zero_shot")
    return voice_id


def _body(way: Way) -> dict:
    text = {
        "tts_text": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT},
        "spk_id": {"type": "string", "description": "Name or id of a voice"},
        "prompt_text": {"type": "string", "description": "What is said in prompt_wav"},
        "instruct_text": {"type": "string", "maxLength": MAX_INSTRUCTION},
    }
    fields = {name: text[name] for name in ("tts_text", *way.fields)} | (
        {"prompt_wav": {"type": "string", "format": "binary"}} if way.has_clip else {}
    )
    agreed = {
        "type": "boolean",
        "default": True,
        "description": (
            "No field of theirs: who sends a recording says by that that its speaker agreed; false"
            " takes it back"
        ),
    }
    schema = {
        "type": "object",
        "required": list(fields),
        "properties": fields | ({"consent": agreed} if way.has_clip else {}),
    }
    kinds = (
        ("multipart/form-data",)
        if way.has_clip
        else ("multipart/form-data", "application/x-www-form-urlencoded")
    )
    return {
        "requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}
    }
