"""How a job's sound is sent over HTTP: while it is made or as a whole file, in any format, plain or
as events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from ..errors import EngineFault, KaikouError
from ..studio import UNLIMITED, Resampler, SpeechJob, Studio, coded_hz, collect, job_reader
from .alignment import brief
from .audio_formats import CODED, SSE, TYPES, delta, done, failed, usage
from .encoding import PIECE_BYTES, EncoderPool, Held
from .middleware.access import language_of

log = logging.getLogger(__name__)
LEAD_S = 10.0  # a plain HTTP reader is served at most this far ahead of the wall clock
# and from there on in pieces of this length: sample by sample as the clock moves would keep a core
# busy
PIECE_S = 0.25
NOTES_BYTES = 2000  # of a header: proxies commonly take 4 to 8 kB of them all


@dataclass(frozen=True)
class OutputOptions:
    """How a job's sound is sent: not part of the request, since it changes no sample.

    kind: a key of TYPES. is_live: while it is made, else as a whole file with true sizes.
    is_events: as server-sent events. is_paced: no faster than a listener needs it. pcm_hz: rate of
    bare samples, 0 = the engine's own.
    """

    kind: str
    is_live: bool = True
    is_events: bool = False
    is_paced: bool = True
    pcm_hz: int = 0


async def reply(
    studio: Studio,
    encoder_pool: EncoderPool,
    job: SpeechJob,
    request: Request,
    options: OutputOptions,
) -> Response:
    """A job's sound as the answer to whoever asked for it.

    Raises KaikouError, and ClientDisconnect when who asked for a whole file has left.
    """
    kind, is_events = options.kind, options.is_events
    rate, language = (
        options.pcm_hz if kind == "pcm" and options.pcm_hz else job.rate,
        language_of(dict(request.headers.raw)),
    )
    headers = job_headers(studio, job, kind, language, rate)
    if options.is_live:
        pacing = (
            job_reader.Pacing(lead_s=LEAD_S, min_piece_s=PIECE_S)
            if options.is_paced
            else job_reader.Pacing(UNLIMITED)
        )
        sound, release = await _sound(studio, encoder_pool, job, kind, rate, pacing)
    else:
        data = await _cancel_on_disconnect(request, _file(studio, encoder_pool, job, kind, rate))
        if not is_events:
            return Response(data, 200, headers, TYPES[kind])
        sound, release = _pieces(data), lambda: None
    return Held(
        _events(studio, sound, job, language) if is_events else sound,
        headers,
        SSE if is_events else TYPES[kind],
        release,
    )


def job_headers(
    studio: Studio, job: SpeechJob, kind: str, language: str, rate: int
) -> dict[str, str]:
    headers = {
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
    return headers | ({"X-Notes": notes_header(job.notes, language)} if job.notes else {})


def notes_header(notes: list[tuple[str, str]], language: str) -> str:
    """The sentences in the caller's language as a percent-encoded JSON array: the first ones that
    fit into a header, whole.
    """
    sentences: list[str] = []
    for en, zh in notes:
        more = [*sentences, zh if language == "zh" else en]
        if len(_header_text(more)) > NOTES_BYTES:
            break
        sentences = more
    return _header_text(sentences)


def _header_text(sentences: list[str]) -> str:
    return quote(json.dumps(sentences, ensure_ascii=False), safe=" ,.:;!?'()")


async def _cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """What is being made, or ClientDisconnect as soon as nobody waits for it any more; then its
    making ends.
    """

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work_task, leave_task = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait([work_task, leave_task], return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientDisconnect()
        return work_task.result()
    finally:
        work_task.cancel()
        leave_task.cancel()


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
        resampler = Resampler(job.rate, rate)
        return resampler.push(pcm) + resampler.flush()
    return (studio.header(job, len(pcm) // 2) if kind == "wav" else b"") + pcm


async def _sound(
    studio: Studio,
    encoder_pool: EncoderPool,
    job: SpeechJob,
    kind: str,
    rate: int,
    pacing: job_reader.Pacing,
) -> tuple[AsyncIterator[bytes], Callable[[], None]]:
    """The file's bytes while they are made, and what to call when nobody takes them any more.

    Raises KaikouError.
    """

    def let_go() -> None:
        studio.job_runner.cancel(job)
        studio.job_runner.reader_done(job)

    if kind not in CODED:
        sound = _stream(studio, job, kind == "wav", pacing)
        return sound if rate == job.rate else _at_rate(sound, Resampler(job.rate, rate)), let_go
    try:
        coder = await encoder_pool.open(job, kind)
    except BaseException:
        let_go()
        raise
    return encoder_pool.pack(coder, _stream(studio, job, False, pacing)), lambda: (
        let_go(),
        encoder_pool.close(coder),
    )


async def _at_rate(sound: AsyncIterator[bytes], resampler: Resampler) -> AsyncIterator[bytes]:
    async for piece in sound:
        if block := resampler.push(piece):
            yield block
    if rest := resampler.flush():
        yield rest


async def _events(
    studio: Studio, sound: AsyncIterator[bytes], job: SpeechJob, language: str
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
    counts = usage(job.request.text, job.request.instruction, job.produced, job.rate)
    yield done(counts, await run_in_threadpool(brief, studio, job))


async def _stream(
    studio: Studio, job: SpeechJob, is_wav: bool, pacing: job_reader.Pacing
) -> AsyncIterator[bytes]:
    """Samples as they are made. A slow reader holds this generator, and so the credit, back.

    Saved before it ends: whoever has heard the end finds the take in the list.
    """
    async with job_reader.JobReader(studio, job, pacing) as reader:
        if is_wav:
            yield studio.header(job, None)
        try:
            async for event in reader:
                if isinstance(event, job_reader.SampleRange):
                    with job.trace.sending():
                        yield job.pcm(event.start, event.stop)  # until the socket has taken it
        except KaikouError as error:
            log.warning("job %s ended after its first byte: %s", job.id, error.code)
            raise BrokenStream(job.id) from None


class BrokenStream(Exception):
    """Ends the connection abnormally: the reader must not take a shortened file for a whole one."""
