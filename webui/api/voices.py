"""/v1/audio/voices: the library over HTTP, and the audio of drafts for the page's A/B listening."""

from __future__ import annotations

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from ..errors import BadInput, TooLarge
from ..studio import Studio
from ..types import Voice

MAX_SAMPLE = 10 << 20


class Change(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    name: str | None = None
    transcript: str | None = None
    language: str | None = None


def told(voice: Voice, engines: list[str]) -> dict:
    return {"id": voice.id, "name": voice.name, "name_zh": voice.name_zh or voice.name, "language": voice.language, "transcript": voice.transcript,
            "created_at": int(voice.created_at), "duration_s": voice.duration_s, "engines": engines, "starter": voice.starter}


async def read(upload: UploadFile) -> bytes:
    data = await upload.read(MAX_SAMPLE + 1)
    if len(data) > MAX_SAMPLE:
        raise TooLarge("The file is over 10 MB or 60 s. Trim it and try again.", "文件超过 10 MB 或 60 秒。请裁短后再传。", param="audio_sample")
    return data


def routes(studio: Studio) -> APIRouter:
    router = APIRouter()
    engines = studio.engine_names

    def owner(request: Request) -> str:
        return request.scope["kk_owner"]

    @router.get("/v1/audio/voices")
    def every(request: Request):
        return {"data": [told(v, engines()) for v in studio.voices.list(owner(request))]}

    @router.post("/v1/audio/voices/inspect")
    async def inspect(request: Request, audio_sample: UploadFile = File()):
        data = await read(audio_sample)
        return await run_in_threadpool(lambda: studio.drafts.inspect(data).to_json())

    @router.post("/v1/audio/voices", status_code=201)
    async def add(request: Request, audio_sample: UploadFile = File(), name: str = Form(), transcript: str = Form(""), language: str = Form(""),
                  denoise: bool = Form(False), consent: str = Form("")):
        data = await read(audio_sample)
        voice, draft = await run_in_threadpool(lambda: studio.voices.add(owner(request), data, name, transcript, language, denoise, consent))
        return JSONResponse({**told(voice, engines()), "report": draft.report.to_json()}, 201)

    @router.get("/v1/audio/voices/{voice_id}")
    def one(voice_id: str, request: Request):
        return told(studio.voices.get(owner(request), voice_id), engines())

    @router.patch("/v1/audio/voices/{voice_id}")
    def change(voice_id: str, body: Change, request: Request):
        return told(studio.voices.change(owner(request), voice_id, body.name, body.transcript, body.language), engines())

    @router.delete("/v1/audio/voices/{voice_id}", status_code=204)
    def delete(voice_id: str, request: Request):
        studio.voices.delete(owner(request), voice_id)
        return Response(status_code=204)

    @router.get("/v1/audio/voices/{voice_id}/sample")
    def sample(voice_id: str, request: Request):
        return Response(studio.voices.sample(owner(request), voice_id), 200, {"Cache-Control": "private, max-age=600"}, "audio/wav")

    @router.get("/tts/draft/{draft_id}/audio")
    def draft_audio(draft_id: str, request: Request, clean: float = 0.0):
        if not 0 <= clean <= 1:
            raise BadInput("clean must be between 0 and 1.", "clean 须在 0 到 1 之间。", code="bad_field", param="clean")
        return Response(studio.drafts.audio(owner(request), draft_id, clean), 200, {"Cache-Control": "private, max-age=600"}, "audio/wav")

    return router
