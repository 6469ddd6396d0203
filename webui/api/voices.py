"""/v1/audio/voices: the library over HTTP, and the audio of drafts for the page's A/B listening."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from pydantic import BaseModel, ConfigDict, FiniteFloat
from starlette.concurrency import run_in_threadpool

from ..errors import BadInput, ClipTooLarge
from ..studio import Studio
from ..types import Voice
from .fields import JsonBody
from .openapi import answers, file_of, refusals

MAX_SAMPLE = 50 << 20  # of a video; what is none may have less, which its decoder sees to
PART = (
    "Of the part to use, in seconds, at most 30 s; needs both. Without: all of it, or the best part"
    " of what is longer"
)


class VoiceInfo(BaseModel):
    id: str
    object: Literal["audio.voice"] = "audio.voice"
    type: Literal["audio_sample"] = "audio_sample"
    name: str
    name_zh: str
    language: str
    transcript: str
    created_at: int
    duration_s: float
    engines: list[str]
    starter: bool


class Part(BaseModel):
    start_s: float
    end_s: float


class Window(Part):
    score: float


class Report(BaseModel):
    """What was found in a recording.

    `warnings`: what is wrong with it, and what helps. `whole`: the recording without its outer
    silence, the part that is used; none where that is longer than 30 s. Then, and where another
    speaker takes over (`speaker_changes_s`), the first of `windows` is used.
    """

    model_config = ConfigDict(extra="allow")
    duration_s: float
    sample_rate_hz: int
    channels: int
    speech_ratio: float
    snr_db: float
    clipping_ratio: float
    loudness_lufs: float
    bandwidth_hz: float
    windows: list[Window]
    whole: Window | None
    speaker_changes_s: list[float]
    warnings: list[dict[str, Any]]


class Note(BaseModel):
    message: str
    message_zh: str


class VoiceAdded(VoiceInfo):
    """`used`: the part of the recording that the voice is made from.

    `notes`: what was not done as asked, and why.
    """

    report: Report
    used: Part
    notes: list[Note]


class VoiceList(BaseModel):
    object: Literal["list"] = "list"
    data: list[VoiceInfo]


class VoiceDeleted(BaseModel):
    id: str
    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    deleted: Literal[True] = True


class Change(JsonBody):
    name: str | None = None
    transcript: str | None = None
    language: str | None = None


def voice_info(voice: Voice, engines: list[str]) -> dict:
    return {
        "id": voice.id,
        "object": "audio.voice",
        "type": "audio_sample",
        "name": voice.name,
        "name_zh": voice.name_zh or voice.name,
        "language": voice.language,
        "transcript": voice.transcript,
        "created_at": int(voice.created_at),
        "duration_s": voice.duration_s,
        "engines": engines,
        "starter": voice.starter,
    }


async def read(upload: UploadFile, param: str = "audio_sample") -> bytes:
    data = await upload.read(MAX_SAMPLE + 1)
    if len(data) > MAX_SAMPLE:
        raise ClipTooLarge(param=param)
    return data


def chosen_window(start_s: float | None, end_s: float | None) -> tuple[float, float] | None:
    """Raises BadInput where only one end is given."""
    if start_s is None and end_s is None:
        return None
    if start_s is None or end_s is None:
        raise BadInput("bad_field.start_and_end", param="start_s" if start_s is None else "end_s")
    return start_s, end_s


def routes(studio: Studio) -> APIRouter:
    router = APIRouter()
    engines = studio.engine_names

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    @router.get("/v1/audio/voices", responses={**answers(200, of=VoiceList), **refusals()})
    def every(request: Request):
        return {
            "object": "list",
            "data": [voice_info(v, engines()) for v in studio.voices.list(owner(request))],
        }

    @router.post("/v1/audio/voices/inspect", responses={**answers(200, of=Report), **refusals(422)})
    async def inspect(request: Request, audio_sample: UploadFile = File()):
        data = await read(audio_sample)
        return await run_in_threadpool(
            lambda: studio.drafts.inspect(owner(request), data).to_json()
        )

    @router.post(
        "/v1/audio/voices",
        status_code=201,
        responses={**answers(201, of=VoiceAdded), **refusals(404, 422, 507)},
    )
    async def add(
        request: Request,
        audio_sample: UploadFile = File(),
        name: str = Form(),
        transcript: str = Form(
            "",
            description="Exactly what is said in the part in use; left out for a longer recording",
        ),
        language: str = Form(""),
        denoise: bool = Form(False),
        consent: str = Form(
            "", description="Who agrees, on what basis; or the id of a recorded consent"
        ),
        start_s: FiniteFloat | None = Form(None, description=PART),
        end_s: FiniteFloat | None = Form(None, description=PART),
    ):
        data = await read(audio_sample)
        window = chosen_window(start_s, end_s)

        def make() -> dict:
            voice, draft = studio.voices.add(
                owner(request),
                data,
                name,
                transcript,
                language,
                denoise,
                consent,
                window,
            )
            return {
                **voice_info(voice, engines()),
                "report": draft.report.to_json(),
                "used": {"start_s": draft.start_s, "end_s": draft.end_s},
                "notes": [{"message": en, "message_zh": zh} for en, zh in draft.notes],
            }

        return await run_in_threadpool(make)

    @router.get(
        "/v1/audio/voices/{voice_id}",
        responses={**answers(200, of=VoiceInfo), **refusals(404, 422)},
        name="one",
    )
    def get_voice(voice_id: str, request: Request):
        return voice_info(studio.voices.get(owner(request), voice_id), engines())

    @router.patch(
        "/v1/audio/voices/{voice_id}",
        responses={**answers(200, of=VoiceInfo), **refusals(404, 422, 507)},
    )
    def change(voice_id: str, body: Change, request: Request):
        return voice_info(
            studio.voices.change(
                owner(request), voice_id, body.name, body.transcript, body.language
            ),
            engines(),
        )

    @router.delete(
        "/v1/audio/voices/{voice_id}",
        responses={**answers(200, of=VoiceDeleted), **refusals(404, 422, 507)},
    )
    def delete(voice_id: str, request: Request):
        studio.voices.delete(owner(request), voice_id)
        return VoiceDeleted(id=voice_id)

    @router.get(
        "/v1/audio/voices/{voice_id}/sample",
        response_class=Response,
        description=(
            "The recording. `natural`: for a starter voice, which has been made by a synthesizer,"
            " what the built-in engine's natural voice makes of it."
        ),
        responses={
            **answers(200, content=file_of("audio/wav", "audio/mpeg")),
            **refusals(404, 422),
        },
    )
    def sample(voice_id: str, request: Request, natural: bool = False):
        mp3 = studio.voices.natural_sample(owner(request), voice_id) if natural else None
        return Response(
            mp3 or studio.voices.sample(owner(request), voice_id),
            200,
            {"Cache-Control": "private, max-age=600"},
            "audio/mpeg" if mp3 else "audio/wav",
        )

    @router.get("/tts/draft/{draft_id}/audio", include_in_schema=False)  # of the page
    def draft_audio(
        draft_id: str, request: Request, clean: FiniteFloat = 0.0, varying: bool = False
    ):
        if not 0 <= clean <= 1:
            raise BadInput("bad_field.clean", param="clean")
        return Response(
            studio.drafts.audio(owner(request), draft_id, clean, varying),
            200,
            {"Cache-Control": "private, max-age=600"},
            "audio/wav",
        )

    return router
