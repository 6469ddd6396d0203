"""POST /v1/audio/speech and the fields it shares with the WebSocket; cancel and result files.

JSON <-> jobs, no decisions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from ..errors import EngineFault, NotFound
from ..studio import (
    OPENAI_MODELS,
    OPENAI_VOICES,
    UNLIMITED,
    JobReader,
    Resampler,
    SpeechJob,
    Studio,
    coded,
    coded_hz,
    collect,
    file_name,
    known_language,
    open_job,
)
from ..types import LANGUAGES, MAX_INSTRUCTION, MAX_TEXT, MAX_TRANSCRIPT
from . import schemas
from .audio_field import named, sound_in
from .audio_formats import (
    CODED,
    EVENT,
    RULE,
    SSE,
    TYPES,
    USAGE,
    WHOLE,
    delta,
    done,
    failed,
    format_of,
    is_streamed,
    is_wrapped,
    usage,
)
from .encoding import PIECE_BYTES, EncoderPool, Held
from .error_handlers import wrong_field
from .fields import JsonBody, Number
from .middleware.access import language_of
from .openapi import answers, body_of, file_of, refusals
from .range_file import RangeFile
from .recent_jobs import RecentJobs

log = logging.getLogger(__name__)
MODEL = [{"enum": ["auto", *OPENAI_MODELS]}, {"type": "string"}]
VOICE = [
    {"enum": sorted(OPENAI_VOICES)},
    {"type": "string"},
    {"type": "object", "properties": {"id": {"type": "string"}}},
]
NAMES = ", ".join(f"{theirs} = {ours}" for theirs, ours in OPENAI_VOICES.items())
# of bare samples, whichever engine speaks: nothing in them says their rate, and clients of OpenAI's
# know this one
PCM_HZ = 24_000
LEAD_S = 10.0  # a plain HTTP reader is served at most this far ahead of the wall clock
# and from there on in pieces of this length: sample by sample as the clock moves would keep a core
# busy
PIECE_S = 0.25
NOTES_BYTES = 2000  # of a header: proxies commonly take 4 to 8 kB of them all
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
        asked = self.asked()
        with named("ref_audio"):
            return studio.synthesis.open(owner, text_in=self.input, **asked)

    def asked(self) -> dict[str, Any]:
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
            kind,
            request,
            is_live=is_streamed(body.stream, kind),
            is_events=is_events,
            pcm_hz=PCM_HZ,
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
        told = await run_in_threadpool(_record, studio, owner, job_id, job)
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

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
            raise NotFound("This take is gone.", "这条记录已经不在了。", code="take_gone")
        owner = request.scope["kk_owner"]
        path = studio.takes.wav_path(owner, take_id)
        called = file_name(studio.takes.get(owner, take_id), kind)
        headers = {"Cache-Control": "private, max-age=3600"}
        if kind == "wav":
            return RangeFile(path, media_type="audio/wav", filename=called, headers=headers)
        headers["Content-Disposition"] = f"attachment; filename*=utf-8''{quote(called)}"
        return Response(coded(path, kind), 200, headers, CODED[kind])

    return router


async def reply(
    studio: Studio,
    encoder_pool: EncoderPool,
    job: SpeechJob,
    kind: str,
    request: Request,
    *,
    is_live: bool = True,
    is_events: bool = False,
    is_paced: bool = True,
    pcm_hz: int = 0,
) -> Response:
    """A job's sound as the answer to whoever asked for it. kind: a key of TYPES. is_live: while it
    is made, else as a whole file. pcm_hz: of bare samples, 0 = the engine's own. Raises
    KaikouError, and ClientDisconnect when who asked for a whole file has left.
    """
    rate, language = (
        pcm_hz if kind == "pcm" and pcm_hz else job.rate,
        language_of(dict(request.headers.raw)),
    )
    headers = _headers(studio, job, kind, language, rate)
    if is_live:
        lead_s = LEAD_S if is_paced else math.inf
        sound, release = await _sound(studio, encoder_pool, job, kind, rate, lead_s)
    else:
        data = await _unless_left(request, _file(studio, encoder_pool, job, kind, rate))
        if not is_events:
            return Response(data, 200, headers, TYPES[kind])
        sound, release = _pieces(data), lambda: None
    return Held(
        _events(sound, job, language) if is_events else sound,
        headers,
        SSE if is_events else TYPES[kind],
        release,
    )


def _headers(studio: Studio, job: SpeechJob, kind: str, language: str, rate: int) -> dict[str, str]:
    told = {
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
        "X-Audio-Format": (
            f"{f'{kind};rate={coded_hz(kind, rate)}' if kind in CODED else f's16le;rate={rate}'}"
            ";channels=1"
        ),
        "X-Job-Id": job.id,
        "X-Seed": str(job.request.seed),
        "X-Voice": job.voice.id,
        "X-Engine": job.engine,
        "X-Model": job.model,
        "X-RTF": f"{studio.expected_rtf(job):.4f}",
    }
    return told | ({"X-Notes": notes_header(job.notes, language)} if job.notes else {})


def notes_header(notes: list[tuple[str, str]], language: str) -> str:
    """The sentences in the caller's language as a percent-encoded JSON array: the first ones that
    fit into a header, whole.
    """
    told: list[str] = []
    for en, zh in notes:
        more = [*told, zh if language == "zh" else en]
        if len(_header_text(more)) > NOTES_BYTES:
            break
        told = more
    return _header_text(told)


def _header_text(sentences: list[str]) -> str:
    return quote(json.dumps(sentences, ensure_ascii=False), safe=" ,.:;!?'()")


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


async def _unless_left(request: Request, making: Coroutine[Any, Any, bytes]) -> bytes:
    """What is being made, or ClientDisconnect as soon as nobody waits for it any more; then its
    making ends.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    made, left = asyncio.ensure_future(making), asyncio.ensure_future(leave())
    try:
        await asyncio.wait([made, left], return_when=asyncio.FIRST_COMPLETED)
        if not made.done():
            raise ClientDisconnect()
        return made.result()
    finally:
        made.cancel()
        left.cancel()


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]


async def _file(
    studio: Studio, encoder_pool: EncoderPool, job: SpeechJob, kind: str, rate: int
) -> bytes:
    """All of it, with true sizes."""
    pcm = await collect(studio, job)
    if kind in CODED:
        return await encoder_pool.whole(job, kind, pcm)
    if rate != job.rate:
        other = Resampler(job.rate, rate)
        return other.push(pcm) + other.flush()
    return (studio.header(job, len(pcm) // 2) if kind == "wav" else b"") + pcm


async def _sound(
    studio: Studio, encoder_pool: EncoderPool, job: SpeechJob, kind: str, rate: int, lead_s: float
) -> tuple[AsyncIterator[bytes], Callable[[], None]]:
    """The file's bytes while they are made, and what to call when nobody takes them any more.

    Raises KaikouError.
    """

    def let_go() -> None:
        studio.job_runner.cancel(job)
        studio.job_runner.reader_done(job)

    if kind not in CODED:
        sound = _stream(studio, job, kind == "wav", lead_s)
        return sound if rate == job.rate else _at_rate(sound, Resampler(job.rate, rate)), let_go
    try:
        coder = await encoder_pool.open(job, kind)
    except BaseException:
        let_go()
        raise
    return encoder_pool.pack(coder, _stream(studio, job, False, lead_s)), lambda: (
        let_go(),
        encoder_pool.close(coder),
    )


async def _at_rate(sound: AsyncIterator[bytes], other: Resampler) -> AsyncIterator[bytes]:
    async for piece in sound:
        if made := other.push(piece):
            yield made
    if rest := other.flush():
        yield rest


async def _events(
    sound: AsyncIterator[bytes], job: SpeechJob, language: str
) -> AsyncIterator[bytes]:
    """The same bytes as server-sent events.

    One that breaks off says why, and then ends abnormally like every other.
    """
    try:
        async for piece in sound:
            yield delta(piece)
    except BrokenStream:
        yield failed(job.snapshot().error or EngineFault(), language)
        raise
    yield done(usage(job.request.text, job.request.instruction, job.produced, job.rate))


async def _stream(
    studio: Studio, job: SpeechJob, is_wav: bool, lead_s: float
) -> AsyncIterator[bytes]:
    """Samples as they are made, never more than lead_s ahead of the wall clock.

    A slow reader holds this generator, and so the credit, back.
    """
    async with JobReader(studio, job) as reader:
        if is_wav:
            yield studio.header(job, None)
        sent, began_s = 0, None
        lead = UNLIMITED if math.isinf(lead_s) else job.n_begun + int(lead_s * job.rate)
        while True:
            played = int((time.monotonic() - began_s) * job.rate) if began_s is not None else 0
            studio.job_runner.credit(job, min(UNLIMITED, played + lead))
            told = job.snapshot()
            stop = min(told.n_samples, played + lead)
            if stop > sent and (stop == told.n_samples or stop - sent >= PIECE_S * job.rate):
                began_s = began_s if began_s is not None else time.monotonic()
                began = time.perf_counter()
                yield job.pcm(sent, stop)  # comes back when the socket has taken it
                job.trace.sent(time.perf_counter() - began)
                sent = stop
            elif told.error is not None and sent == told.n_samples:
                log.warning("job %s ended after its first byte: %s", job.id, told.error.code)
                raise BrokenStream(job.id)
            elif (
                told.state == "done" and sent == told.n_samples
            ):  # saved: whoever has heard the end finds the take in the list
                return
            else:
                await reader.change(
                    PIECE_S if sent < told.n_samples or sent >= job.credit else None
                )


class BrokenStream(Exception):
    """Ends the connection abnormally: the reader must not take a shortened file for a whole one."""
