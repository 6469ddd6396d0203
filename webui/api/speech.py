"""POST /v1/audio/speech and the fields it shares with the WebSocket; cancel and result files. JSON <-> jobs, no decisions."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from ..errors import BadInput, NotFound
from ..studio import UNLIMITED, Job, Studio, file_name
from .guard import language_of
from .reader import JobReader, open_job
from .recent import Recent

log = logging.getLogger(__name__)
LEAD_S = 10.0  # a plain HTTP reader is served at most this far ahead of the wall clock
NOTES_BYTES = 2000  # of a header: proxies commonly take 4 to 8 kB of them all
TYPES = {"wav": "audio/wav", "pcm": "audio/pcm"}


class Speech(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    model: str = "auto"
    input: str
    voice: str | dict[str, Any] = ""
    instructions: str = ""
    response_format: str = "wav"
    speed: Annotated[float, Field(allow_inf_nan=False)] | Annotated[int, Field(ge=-1000, le=1000)] = 1.0  # an int without end is no float
    stream: bool = True
    mode: Literal["auto", "zero_shot", "cross_lingual", "instruct", "preset", "convert"] = "auto"
    language: str = "auto"
    seed: int | None = None
    profile: str = "fast"
    transcript: str = ""
    consent: bool = False
    source: str = ""  # id of the clip whose words are converted, mode "convert" only

    def open(self, studio: Studio, owner: str) -> Job:
        """Blocking; raises every refusal there is."""
        voice = self.voice if isinstance(self.voice, str) else str(self.voice.get("id", ""))
        return studio.speaker.open(owner, text_in=self.input, voice_id=voice[:200], mode=self.mode, instruction=self.instructions, language=self.language[:16],
                                   speed=float(self.speed), seed=-1 if self.seed is None else self.seed, model=self.model, consent=self.consent,
                                   transcript=self.transcript[:500], source=self.source[:80])


def routes(studio: Studio, recent: Recent) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/audio/speech")
    async def speak(body: Speech, request: Request):
        if body.response_format not in TYPES:
            raise BadInput(f"The format {body.response_format[:20]} is not made here yet. Use wav or pcm.", f"暂不支持格式 {body.response_format[:20]}，请用 wav 或 pcm。",
                           param="response_format", code="bad_format")
        job = await open_job(studio, lambda: body.open(studio, request.scope["kk_owner"]))
        recent.keep(job)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Audio-Format": f"s16le;rate={job.rate};channels=1", "X-Job-Id": job.id,
                   "X-Seed": str(job.request.seed), "X-Voice": job.voice.id, "X-Engine": job.engine, "X-RTF": f"{studio.speaker.expected_rtf():.4f}"}
        if job.notes:
            headers["X-Notes"] = notes_header(job.notes, language_of(dict(request.headers.raw)))
        is_wav = body.response_format == "wav"
        if not body.stream:
            data = await _whole(studio, job)
            return Response((studio.header(job, len(data) // 2) if is_wav else b"") + data, 200, headers, TYPES[body.response_format])
        return StreamingResponse(_stream(studio, job, is_wav), 200, headers, TYPES[body.response_format])

    @router.post("/tts/cancel/{job_id}")
    async def cancel(job_id: str, request: Request):
        job = recent.find(job_id, request.scope["kk_owner"])
        if job is not None:
            studio.speaker.cancel(job)
        return {"cancelled": job is not None}

    @router.get("/tts/result/{job_id}.json")
    async def record(job_id: str, request: Request):
        owner = request.scope["kk_owner"]
        return JSONResponse(_record(studio, owner, job_id, recent.find(job_id, owner)), headers={"Cache-Control": "no-store"})

    @router.get("/tts/result/{name}")
    def result(name: str, request: Request):
        take_id, dot, kind = name.rpartition(".")
        if not dot or kind != "wav":
            raise NotFound("This take is gone.", "这条记录已经不在了。", code="take_gone")
        owner = request.scope["kk_owner"]
        path = studio.takes.wav_path(owner, take_id)
        return FileResponse(path, media_type="audio/wav", filename=file_name(studio.takes.get(owner, take_id)), headers={"Cache-Control": "private, max-age=3600"})

    return router


def notes_header(notes: list[tuple[str, str]], language: str) -> str:
    """The sentences in the caller's language as a percent-encoded JSON array: the first ones that fit into a header, whole."""
    told: list[str] = []
    for en, zh in notes:
        more = [*told, zh if language == "zh" else en]
        if len(_header_text(more)) > NOTES_BYTES:
            break
        told = more
    return _header_text(told)


def _header_text(sentences: list[str]) -> str:
    return quote(json.dumps(sentences, ensure_ascii=False), safe=" ,.:;!?'()")


def _record(studio: Studio, owner: str, take_id: str, job: Job | None) -> dict:
    """What is known of a take, or of a request that is still spoken, failed or was stopped; the trace is the latest."""
    if job is not None:
        now = job.snapshot()
        return {"job": job.id, "state": now.state, "samples": now.n_samples, "rate": job.rate, "engine": job.engine, "engine_version": job.engine_version,
                "seed": job.request.seed, "rtf": round(now.rtf, 4), "trace": job.trace.told()}
    take = studio.takes.get(owner, take_id)
    return {"job": take.id, "state": take.state, "samples": take.n_samples, "rate": take.sample_rate, "engine": take.engine, "engine_version": take.engine_version,
            "seed": take.request.seed, "rtf": take.rtf, "trace": take.trace}


async def _whole(studio: Studio, job: Job) -> bytes:
    async with JobReader(studio, job) as reader:
        studio.speaker.credit(job, UNLIMITED)
        while True:
            told = await reader.change()
            if told.error is not None:
                raise told.error
            if told.state in ("saving", "done"):
                return job.pcm(0, told.n_samples)


async def _stream(studio: Studio, job: Job, is_wav: bool) -> AsyncIterator[bytes]:
    """Samples as they are made, never more than LEAD_S ahead of the wall clock. A slow reader holds this generator, and so the credit, back."""
    async with JobReader(studio, job) as reader:
        if is_wav:
            yield studio.header(job, None)
        sent, began_s, lead = 0, None, int(LEAD_S * job.rate)
        while True:
            played = int((time.monotonic() - began_s) * job.rate) if began_s is not None else 0
            studio.speaker.credit(job, played + lead)
            told = job.snapshot()
            stop = min(told.n_samples, played + lead)
            if stop > sent:
                began_s = began_s if began_s is not None else time.monotonic()
                began = time.perf_counter()
                yield job.pcm(sent, stop)  # comes back when the socket has taken it
                job.trace.sent(time.perf_counter() - began)
                sent = stop
            elif told.error is not None:
                log.warning("job %s ended after its first byte: %s", job.id, told.error.code)
                raise BrokenStream(job.id)
            elif told.state in ("saving", "done") and sent == told.n_samples:
                return
            else:
                await reader.change(0.25 if sent >= job.credit else None)


class BrokenStream(Exception):
    """Ends the connection abnormally: the reader must not take a shortened file for a whole one."""
