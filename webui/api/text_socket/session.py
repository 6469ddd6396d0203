"""One request whose text is still being written: what has come of it, what is spoken of it, how
much of that was sent. Blind to what came before or after.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool

from ...errors import BadInput, KaikouError
from ...studio import Snapshot, SpeechJob, Studio, TextSource, job_reader, open_job
from ..audio_field import with_param
from ..audio_formats import usage
from ..player_socket import FRAME, FRAME_S, MAGIC
from ..recent_jobs import RecentJobs
from ..socket_auth import SocketAuth
from ..speech import Speech
from .protocol import JsonSocket, report_errors

LEAD_S = 5.0  # a listener that gives no credit is served at most this far ahead of the wall clock
MIN_PIECE_S = 0.1  # and then in pieces no shorter, or the clock's every step would be a frame
INLINE_CHARS = 200  # a longer delta is normalised off the event loop


class Start(Speech):
    """The fields of /v1/audio/speech but the text."""

    input: str = ""
    audio: Literal["binary", "base64"] = "binary"
    credit: int | None = Field(
        None,
        ge=0,
        lt=1 << 53,
        description=(
            "Samples that may be sent before the next `credit`; none: as they are played, five"
            " seconds ahead"
        ),
    )


class TextSession:
    """One request: what was asked, what has been written, what is spoken of it, how much of that
    was sent.
    """

    def __init__(
        self,
        studio: Studio,
        recent_jobs: RecentJobs,
        socket: JsonSocket,
        holder: SocketAuth,
        owner: str,
        number: int,
        start: Start,
        params: dict,
        text_source: TextSource,
    ):
        self.number, self.text_source = number, text_source
        self.pacing = job_reader.Pacing(
            start.credit, LEAD_S, MIN_PIECE_S, FRAME_S, socket.idle_s, holder.error
        )
        self._studio, self._recent, self._socket, self._owner = studio, recent_jobs, socket, owner
        self._holder = holder
        self._params, self._is_base64 = params, start.audio == "base64"
        self._has_words = asyncio.Event()
        self._reader: job_reader.JobReader | None = None
        self.task = asyncio.create_task(self._run())

    # ---- the writer's side -----------------------------------------------------------------------
    async def write(self, delta: str) -> None:
        """Raises BadInput."""
        if self.text_source.is_over:
            raise BadInput("text_over", param="type")
        if len(delta) > INLINE_CHARS:
            await run_in_threadpool(self.text_source.push, delta)
        else:
            self.text_source.push(delta)
        self.look()

    def poke(self) -> None:
        """The right to be here may have ended."""
        self.pacing.error = self._holder.error
        self._has_words.set()
        if self._reader is not None:
            self._reader.poke()

    def look(self) -> None:
        """The text may have begun, or ended without having begun."""
        if self.text_source.first or self.text_source.is_over:
            self._has_words.set()

    def raise_credit(self, upto: int) -> None:
        self.pacing.raise_credit(upto)
        if self._reader is not None:
            self._reader.poke()

    async def stop(self) -> bool:
        """True when it was not over yet. Nothing is sent of it afterwards."""
        was_on = not self.task.done()
        self.task.cancel()
        await asyncio.wait([self.task])
        return was_on

    # ---- the speaker's side ----------------------------------------------------------------------
    async def _run(self) -> None:
        async with report_errors(self._tell_failed):
            try:
                await self._has_words.wait()
                self.pacing.check()
                job = await self._open()
                async with job_reader.JobReader(self._studio, job, self.pacing) as self._reader:
                    self._recent.keep(job)
                    await self._pour(job, self._reader)
            finally:
                self._reader = None

    async def _open(self) -> SpeechJob:
        text_source, studio = self.text_source, self._studio
        if not text_source.first:
            raise BadInput("no_text", param="delta")
        with with_param("ref_audio"):
            return await open_job(
                studio,
                lambda: studio.synthesis.open(
                    self._owner, text_in=text_source.first, text_source=text_source, **self._params
                ),
            )

    async def _pour(self, job: SpeechJob, reader: job_reader.JobReader) -> None:
        async for event in reader:
            match event:
                case job_reader.QueuePosition():
                    await self.tell("speech.queued", **event._asdict())
                case job_reader.JobStart():
                    await self._tell_begin(job)
                case job_reader.SentenceStart(index, start):
                    text = self.text_source.pieces[index]
                    await self.tell("speech.sentence", index=index, start=start, text=text)
                case job_reader.SampleRange():
                    with job.trace.sending():
                        await self._send(job, event)
                case Snapshot():
                    await self._tell_done(job, event)

    async def _send(self, job: SpeechJob, samples: job_reader.SampleRange) -> None:
        start, stop, is_last = samples
        sound = job.pcm(start, stop)
        if self._is_base64:
            audio = base64.b64encode(sound).decode()
            await self.tell("speech.audio.delta", start=start, audio=audio)
        else:
            head = FRAME.pack(MAGIC, is_last, self.number, start)
            await self._socket.send_bytes(head + sound)

    # ---- what is told ----------------------------------------------------------------------------
    async def tell(self, kind: str, **fields) -> None:
        await self._socket.tell({"type": kind, "request": self.number, **fields})

    async def _tell_failed(self, error: KaikouError) -> None:
        words = self._socket.words_of(error)
        await self.tell("speech.failed", samples=self.pacing.n_sent, **words)

    async def _tell_begin(self, job: SpeechJob) -> None:
        notes = [zh if self._socket.language == "zh" else en for en, zh in job.notes]
        await self.tell(
            "speech.begin",
            job=job.id,
            rate=job.rate,
            channels=1,
            seed=job.request.seed,
            engine=job.engine,
            model=job.model,
            voice=job.voice.id,
            mode=job.request.mode,
            notes=notes,
        )

    async def _tell_done(self, job: SpeechJob, now: Snapshot) -> None:
        request = job.request
        problem = {} if now.save_error is None else self._socket.words_of(now.save_error)
        await self.tell(
            "speech.audio.done",
            job=job.id,
            samples=now.n_samples,
            seed=request.seed,
            url=f"/tts/result/{job.id}.wav" if now.saved else None,
            usage=usage(request.text, request.instruction, now.n_samples, job.rate),
            **problem,
        )
