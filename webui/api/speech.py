"""POST /v1/audio/speech and the fields it shares with the WebSocket; cancel and result files.

JSON <-> jobs, no decisions.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from ..errors import NotFound
from ..studio import (
    OPENAI_MODELS,
    OPENAI_VOICES,
    SpeechJob,
    Studio,
    coded,
    file_name,
    known_language,
    open_job,
)
from ..types import LANGUAGES, MAX_INSTRUCTION, MAX_TEXT, MAX_TRANSCRIPT
from . import schemas
from .audio_field import sound_in, with_param
from .audio_formats import (
    CODED,
    EVENT,
    RULE,
    SSE,
    TYPES,
    USAGE,
    WHOLE,
    format_of,
    is_streamed,
    is_wrapped,
)
from .encoding import EncoderPool
from .error_handlers import wrong_field
from .fields import JsonBody, Number
from .openapi import answers, body_of, file_of, refusals
from .range_file import RangeFile
from .recent_jobs import RecentJobs
from .speech_response import OutputOptions, reply

MODEL = [{"enum": ["auto", *OPENAI_MODELS]}, {"type": "string"}]
VOICE = [
    {"enum": sorted(OPENAI_VOICES)},
    {"type": "string"},
    {"type": "object", "properties": {"id": {"type": "string"}}},
]
NAMES = ", ".join(f"{alias} = {voice_name}" for alias, voice_name in OPENAI_VOICES.items())
# of bare samples, whichever engine speaks: nothing in them says their rate, and clients of OpenAI's
# know this one
PCM_HZ = 24_000
SMALL_BODY = 1 << 16  # a larger one is read off the event loop


class Speech(JsonBody):
    model: str = Field(
        "auto",
        json_schema_extra={"anyOf": MODEL},
        description=(
            "`auto`, the engine's name (it chooses among its voices), `builtin-natural` or"
            " `builtin-instant` for one voice of the built-in engine, or one of OpenAI's names,"
            " which mean `auto`. Which one spoke is in `X-Model`"
        ),
    )
    input: str = Field(
        description="What to say", json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT}
    )
    voice: str | dict[str, Any] = Field(
        "",
        json_schema_extra={"anyOf": VOICE},
        description=(
            'Id of a voice, `{"id": …}`, or one of OpenAI\'s voice names, each of which means one'
            " of the starter voices: "
        )
        + NAMES,
    )
    instructions: str = Field(
        "",
        description="How to say it. Never spoken",
        json_schema_extra={"maxLength": MAX_INSTRUCTION},
    )
    response_format: str | None = Field(
        None, description=RULE, json_schema_extra={"enum": [*TYPES, None]}
    )
    stream_format: str = Field(
        "audio",
        description=(
            "`sse`: events `speech.audio.delta` with base64 in `audio`, then `speech.audio.done`"
            " with `usage`. "
        )
        + USAGE,
        json_schema_extra={"enum": ["audio", "sse"]},
    )
    speed: Number = Field(1.0, json_schema_extra={"minimum": 0.25, "maximum": 4})
    stream: bool | None = Field(None, description=WHOLE)
    mode: Literal["auto", "zero_shot", "cross_lingual", "instruct", "preset", "convert"] = "auto"
    language: str = Field(
        "auto", description=f"`auto`, or a BCP 47 tag of one of: {', '.join(LANGUAGES)}"
    )
    seed: int | None = Field(
        None,
        description="-1 or none: any. The one that was used is in `X-Seed`",
        json_schema_extra={"minimum": -1, "maximum": 2**63 - 1},
    )
    profile: str = "fast"
    transcript: str = ""
    consent: bool = Field(
        False, description="The speaker of a recording that is no saved voice agreed to its use"
    )
    source: str = Field(
        "", description="Id of the page's clip whose words are converted, mode `convert` only"
    )
    source_audio: str = Field(
        "",
        description=(
            "The recording whose words are converted, mode `convert` only: 1 to 30 s, as"
            " `ref_audio` and with `consent: true`. Goes before `source`; `input` may be empty"
        ),
    )
    ref_audio: str = Field(
        "",
        description=(
            "A reference recording for this request alone, as base64 or a data: URL; needs"
            " `consent: true`, goes before `voice`, is never written to disk. Addresses and paths"
            " are refused"
        ),
    )
    ref_text: str = Field("", description="What is said in `ref_audio`")
    continue_from: str = Field(
        "",
        description=(
            "Id of a take that was stopped or failed: the sound is that take up to the sentence"
            " that broke, and goes on from there with the same seed. All other fields are the"
            " take's, and `input` may be empty. The finished take replaces it"
        ),
    )

    def open(self, studio: Studio, owner: str) -> SpeechJob:
        """Blocking; raises every refusal there is."""
        if self.continue_from:
            return studio.synthesis.continue_take(owner, self.continue_from[:80])
        params = self.to_params()
        with with_param("ref_audio"):
            return studio.synthesis.open(owner, text_in=self.input, **params)

    def to_params(self) -> dict[str, Any]:
        """What the studio is asked for, but the text. Raises BadInput, TooLarge."""
        voice = self.voice if isinstance(self.voice, str) else str(self.voice.get("id", ""))
        reference = sound_in(self.ref_audio, "ref_audio") if self.ref_audio else b""
        recording = sound_in(self.source_audio, "source_audio") if self.source_audio else b""
        transcript = (self.ref_audio and self.ref_text) or self.transcript
        return {
            "voice_id": voice[:200],
            "mode": self.mode,
            "instruction": self.instructions,
            "language": known_language(self.language[:17]),
            "speed": float(self.speed),
            "seed": -1 if self.seed is None else self.seed,
            "model": self.model,
            "consent": self.consent,
            "transcript": transcript[:MAX_TRANSCRIPT],
            "source": self.source[:80],
            "recording": recording,
            "reference": reference,
        }


def read(data: bytes) -> Speech:
    """Raises BadInput."""
    try:
        return Speech.model_validate_json(data)
    except ValidationError as error:
        raise wrong_field(error) from None


def routes(studio: Studio, recent_jobs: RecentJobs) -> APIRouter:
    router, encoder_pool = APIRouter(), EncoderPool(studio)

    @router.post(
        "/v1/audio/speech",
        response_class=Response,
        openapi_extra=body_of(Speech),
        description=f"{RULE}\n\n{USAGE}",
        responses={
            200: {
                "description": "The sound, while it is made",
                "content": {**file_of(*TYPES.values()), SSE: {"schema": EVENT}},
            },
            **refusals(404, 422, 429, 500, 503),
        },
    )
    async def speak(request: Request):
        data = await request.body()  # the guard ends it at its limit
        body = read(data) if len(data) < SMALL_BODY else await run_in_threadpool(read, data)
        kind, is_events = (
            format_of(body.response_format, request.headers),
            is_wrapped(body.stream_format),
        )
        job = await open_job(studio, lambda: body.open(studio, request.scope["kk_owner"]))
        recent_jobs.keep(job)
        return await reply(
            studio,
            encoder_pool,
            job,
            request,
            OutputOptions(kind, is_streamed(body.stream, kind), is_events, pcm_hz=PCM_HZ),
        )

    @router.post(
        "/tts/cancel/{job_id}",
        responses={**answers(200, of=schemas.CancelInfo), **refusals(404, 422)},
    )
    async def cancel(job_id: str, request: Request):
        job = recent_jobs.find(job_id, request.scope["kk_owner"])
        if job is not None:
            studio.job_runner.cancel(job)
        return {"cancelled": job is not None}

    @router.get(
        "/tts/result/{job_id}.json",
        responses={**answers(200, of=schemas.TakeInfo), **refusals(404, 422)},
    )
    async def record(job_id: str, request: Request):
        owner = request.scope["kk_owner"]
        job = recent_jobs.find(job_id, owner)
        result = await run_in_threadpool(_record, studio, owner, job_id, job)
        return JSONResponse(result, headers={"Cache-Control": "no-store"})

    @router.get(
        "/tts/result/{name}",
        response_class=RangeFile,
        responses={
            **answers(200, 206, content=file_of("audio/wav", *CODED.values())),
            **refusals(404, 416, 422, 500),
        },
    )
    def result(name: str, request: Request):
        take_id, dot, kind = name.rpartition(".")
        if not dot or kind not in ("wav", *CODED):
            raise NotFound("take_gone.gone")
        owner = request.scope["kk_owner"]
        path = studio.takes.wav_path(owner, take_id)
        called = file_name(studio.takes.get(owner, take_id), kind)
        headers = {"Cache-Control": "private, max-age=3600"}
        if kind == "wav":
            return RangeFile(path, media_type="audio/wav", filename=called, headers=headers)
        headers["Content-Disposition"] = f"attachment; filename*=utf-8''{quote(called)}"
        return Response(coded(path, kind), 200, headers, CODED[kind])

    return router


def _record(studio: Studio, owner: str, take_id: str, job: SpeechJob | None) -> dict:
    """What is known of a take, or of a request that is still spoken, failed or was stopped; the
    trace is the latest.
    """
    if job is not None:
        now = job.snapshot()
        return {
            "job": job.id,
            "state": now.state,
            "samples": now.n_samples,
            "rate": job.rate,
            "engine": job.engine,
            "engine_version": job.engine_version,
            "model": job.model,
            "seed": job.request.seed,
            "rtf": round(now.rtf, 4),
            "trace": job.trace.to_dict(),
        }
    take = studio.takes.get(owner, take_id)
    return {
        "job": take.id,
        "state": take.state,
        "samples": take.n_samples,
        "rate": take.sample_rate,
        "engine": take.engine,
        "engine_version": take.engine_version,
        "model": take.model,
        "seed": take.request.seed,
        "rtf": take.rtf,
        "trace": take.trace,
    }
