"""kaikou.v1.Speech: messages <-> jobs, no decisions."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from ...errors import BadInput, Cancelled
from ...proto.kaikou_pb2 import Request, Sound, TalkMessage
from ...proto.kaikou_pb2_grpc import SpeechServicer
from ...studio import SpeechJob, Studio, collect, job_reader, open_job
from ..audio_field import with_param
from ..error_handlers import wrong_field
from ..idle import Idle
from ..recent_jobs import RecentJobs
from ..speech import Speech
from ..speech_response import LEAD_S, PIECE_S, job_headers
from ..text_session import TextSession
from .call import Call

AHEAD_S = 1.0  # of a stream: made ahead of what its reader's connection has taken, at most
PIECE_S_LONGEST = (1.0,)  # of sound in a message, so that none is over a client's usual 4 MB
SOUNDS = ("ref_audio", "source_audio")


class SpeechService(SpeechServicer):
    def __init__(self, studio: Studio, recent_jobs: RecentJobs, idle_s: float):
        self._studio, self._recent, self._idle_s = studio, recent_jobs, idle_s

    async def Speak(self, request: Request, call: Call) -> Sound:  # noqa: N802
        job = await self._open(request, call)
        pcm = await collect(self._studio, job)
        await call.begin(self._headers(job, call))
        return Sound(pcm=pcm, last=True, seed=job.request.seed, rate=job.rate)

    async def Stream(self, request: Request, call: Call) -> None:  # noqa: N802
        job = await self._open(request, call)
        pacing = job_reader.Pacing(
            lead_s=LEAD_S, min_piece_s=PIECE_S, piece_s=PIECE_S_LONGEST, ahead_s=AHEAD_S
        )
        async with job_reader.JobReader(self._studio, job, pacing) as reader:
            await self._pour(reader, call)

    async def Talk(self, messages: AsyncIterator[TalkMessage], call: Call) -> None:  # noqa: N802
        session = await self._start(messages, call)
        speaking = asyncio.create_task(self._speak(session, call))
        listening = asyncio.create_task(self._listen(session, messages))
        try:
            await asyncio.wait({speaking, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()  # what was wrong with a message, or that it said cancel
            await speaking
        finally:
            for task in (speaking, listening):
                task.cancel()
            await asyncio.gather(speaking, listening, return_exceptions=True)

    # ---- what is asked ---------------------------------------------------------------------------
    async def _open(self, request: Request, call: Call) -> SpeechJob:
        job = await open_job(
            self._studio, lambda: _speech_of(request).open(self._studio, call.owner)
        )
        self._recent.keep(job)
        return job

    async def _start(self, messages: AsyncIterator[TalkMessage], call: Call) -> TextSession:
        first = await Idle(self._idle_s).wait(anext(messages, None), lambda: True)
        if first is None or not first.HasField("open"):
            raise BadInput("no_request.open", param="open")
        opening, request = first.open, first.open.request

        def expect():
            params = _speech_of(request).to_params()
            with with_param("ref_audio"):
                text_source, _ = self._studio.synthesis.open_text_stream(call.owner, **params)
            return params, text_source

        params, text_source = await run_in_threadpool(expect)
        session = TextSession(
            self._studio,
            self._recent,
            call.owner,
            call.holder,
            params,
            text_source,
            opening.credit if opening.HasField("credit") else None,
            PIECE_S_LONGEST,
            self._idle_s,
        )
        if request.input:
            await session.write(request.input)
        return session

    async def _listen(self, session: TextSession, messages: AsyncIterator[TalkMessage]) -> None:
        """Until the caller has nothing more to say."""
        idle = Idle(self._idle_s)
        while True:
            message = await idle.wait(anext(messages, None), lambda: session.is_their_turn)
            if message is None:
                return await session.end()
            match message.WhichOneof("message"):
                case "piece":
                    await _write(session, message.piece)
                case "credit":
                    session.raise_credit(message.credit.upto)
                case "cancel":
                    raise Cancelled()
                case "open":
                    raise BadInput("no_request.second", param="open")
                # another one may be a later version's, and is passed over as unknown fields are

    # ---- what is answered ------------------------------------------------------------------------
    async def _speak(self, session: TextSession, call: Call) -> None:
        async with session.reader() as reader:
            await self._pour(reader, call)

    async def _pour(self, reader: job_reader.JobReader, call: Call) -> None:
        job, number, is_told, marks = reader.job, 0, False, []
        about = {"seed": job.request.seed, "rate": job.rate}
        await call.begin(self._headers(job, call))
        async for event in reader:
            if isinstance(event, job_reader.SentenceStart):
                marks.append((event.index, event.start))
            if not isinstance(event, job_reader.SampleRange):
                continue
            for segment, start, stop in _by_segment(marks, event.start, event.stop):
                is_told = event.is_last and stop == event.stop
                pcm = job.pcm(start, stop)
                with job.trace.sending():
                    await call.write(
                        Sound(
                            number=number,
                            pcm=pcm,
                            segment=segment,
                            start=start,
                            last=is_told,
                            **about,
                        )
                    )
                number += 1
        if not is_told:
            segment = marks[-1][0] if marks else 0
            await call.write(
                Sound(number=number, segment=segment, start=job.produced, last=True, **about)
            )

    def _headers(self, job: SpeechJob, call: Call) -> dict[str, str | bytes]:
        """As HTTP tells them, and the head of a WAV, which says that a machine made it."""
        headers = job_headers(self._studio, job, "wav", call.language, job.rate)
        about = {name: value for name, value in headers.items() if name.startswith("X-")}
        return about | {"wav-head-bin": self._studio.header(job, None)}


def _speech_of(request: Request) -> Speech:
    """Checked as the JSON of the same fields is. Raises BadInput."""
    fields = {field.name: value for field, value in request.ListFields()}
    fields |= {name: base64.b64encode(fields[name]).decode() for name in SOUNDS if name in fields}
    try:
        return Speech.model_validate({"input": "", **fields})
    except ValidationError as error:
        raise wrong_field(error) from None


async def _write(session: TextSession, piece) -> None:
    if piece.text:
        await session.write(piece.text)
    if piece.flush:
        await session.flush()
    if piece.last:
        await session.end()


def _by_segment(marks: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int, int]]:
    """(segment, start, stop) of samples start..stop; `marks`: segments and where each begins."""
    ends = [at for _, at in marks[1:]] + [stop]
    cuts = [(i, max(start, at), min(stop, end)) for (i, at), end in zip(marks, ends)]
    return [cut for cut in cuts if cut[1] < cut[2]]
