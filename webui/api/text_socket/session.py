"""One request on the text socket: what it is told of the sound, and the sound itself."""

from __future__ import annotations

import asyncio
import base64
from typing import Literal

from pydantic import Field

from ...errors import KaikouError
from ...studio import Snapshot, SpeechJob, job_reader
from ..audio_formats import usage
from ..player_socket import FRAME, MAGIC
from ..speech import Speech
from ..text_session import TextSession
from .protocol import JsonSocket, report_errors


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


class SocketSession:
    """`text`: the request that is spoken here as it is written."""

    def __init__(self, socket: JsonSocket, number: int, is_base64: bool, text: TextSession):
        self.number, self.text = number, text
        self._socket, self._is_base64 = socket, is_base64
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> bool:
        """True when it was not over yet. Nothing is sent of it afterwards."""
        was_on = not self.task.done()
        self.task.cancel()
        await asyncio.wait([self.task])
        return was_on

    async def _run(self) -> None:
        async with report_errors(self._tell_failed), self.text.reader() as reader:
            await self._pour(reader.job, reader)

    async def _pour(self, job: SpeechJob, reader: job_reader.JobReader) -> None:
        async for event in reader:
            match event:
                case job_reader.QueuePosition():
                    await self.tell("speech.queued", **event._asdict())
                case job_reader.JobStart():
                    await self._tell_begin(job)
                case job_reader.SentenceStart(index, start):
                    text = self.text.text_source.pieces[index]
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
        await self.tell("speech.failed", samples=self.text.pacing.n_sent, **words)

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
            segments=await self.text.segments(job),
            **problem,
        )
