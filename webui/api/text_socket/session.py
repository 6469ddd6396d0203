"""One request whose text is still being written: what has come of it, what is spoken of it, how
much of that was sent. Blind to what came before or after.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from typing import Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect

from ...errors import BadInput, KaikouError
from ...studio import JobReader, Snapshot, SpeechJob, Studio, TextSource, open_job
from ..audio_field import with_param
from ..audio_formats import usage
from ..player_socket import FRAME, FRAME_S, MAGIC, unheard
from ..recent_jobs import RecentJobs
from ..socket_auth import SocketAuth
from ..speech import Speech
from .protocol import JsonSocket

log = logging.getLogger(__name__)
LEAD_S = 5.0  # a listener that gives no credit is served at most this far ahead of the wall clock
# whether the clock has gone on; less than that is not sent by itself, or the clock's every step
# would be a frame
LOOK_AGAIN_S = 0.1
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
        asked: dict,
        written: TextSource,
    ):
        self.number, self.written, self.credit, self.sent = number, written, start.credit, 0
        self._studio, self._recent, self._socket, self._owner = studio, recent_jobs, socket, owner
        self._holder = holder
        self._asked, self._is_base64 = asked, start.audio == "base64"
        self._has_words = asyncio.Event()
        self._reader: JobReader | None = None
        self._moved_s = time.monotonic()  # when a sample was sent or credited last
        self._frames, self._told_position, self._told_marks, self._began_s = 0, 0, 0, None
        self.task = asyncio.create_task(self._run())

    # ---- the writer's side -----------------------------------------------------------------------
    async def write(self, delta: str) -> None:
        """Raises BadInput."""
        if self.written.is_over:
            raise BadInput(
                "The text was ended before this came. Start another request.",
                "文本已经结束，请另起一次请求。",
                param="type",
                code="text_over",
            )
        if len(delta) > INLINE_CHARS:
            await run_in_threadpool(self.written.push, delta)
        else:
            self.written.push(delta)
        self.look()

    def poke(self) -> None:
        """What the speaker's side goes by has changed."""
        self._has_words.set()
        if self._reader is not None:
            self._reader.poke()

    def look(self) -> None:
        """The text may have begun, or ended without having begun."""
        if self.written.first or self.written.is_over:
            self._has_words.set()

    @property
    def is_held_back(self) -> bool:
        """There is no more that may be sent."""
        return self.credit is not None and self.sent >= self.credit

    def raise_credit(self, upto: int) -> None:
        if self.credit is not None and upto > self.credit:
            self.credit, self._moved_s = upto, time.monotonic()
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
        try:
            await self._has_words.wait()
            self._check_talk()
            job = await self._open()
            async with JobReader(self._studio, job) as self._reader:
                self._recent.keep(job)
                await self._pour(job, self._reader)
        except KaikouError as error:
            await self.tell("speech.failed", samples=self.sent, **self._socket.words_of(error))
        except (WebSocketDisconnect, RuntimeError, OSError):
            log.debug("the socket went away in mid-speech")
        except Exception:
            log.exception("request %d of a socket failed", self.number)
            await self.tell(
                "speech.failed",
                samples=self.sent,
                **self._socket.words_of(
                    KaikouError(
                        "Something went wrong here. Please try again.",
                        "这里出了点问题，请再试一次。",
                    )
                ),
            )
        finally:
            self._reader = None

    async def _open(self) -> SpeechJob:
        written, studio = self.written, self._studio
        if not written.first:
            raise BadInput(
                "Write something to say first: the text has no letters or digits.",
                "先写点要说的话：文本里没有可读的字。",
                param="delta",
                code="no_text",
            )
        with with_param("ref_audio"):
            return await open_job(
                studio,
                lambda: studio.synthesis.open(
                    self._owner, text_in=written.first, written=written, **self._asked
                ),
            )

    async def _pour(self, job: SpeechJob, reader: JobReader) -> None:
        studio, is_begun = self._studio, False
        while True:
            self._check_talk()
            may = self._may_send(job.rate)
            studio.job_runner.credit(job, may)
            now = job.snapshot()
            if now.state == "waiting":
                await self._tell_position(now)
                await reader.change()
                continue
            if not is_begun:
                is_begun = True
                await self._tell_begin(job)
            await self._tell_sentences(now)
            stop = min(
                now.n_samples,
                may,
                self.sent + int(FRAME_S[min(self._frames, len(FRAME_S) - 1)] * job.rate),
            )
            is_crumb = (
                self.credit is None
                and stop == may < now.n_samples
                and stop - self.sent < LOOK_AGAIN_S * job.rate
            )
            if stop > self.sent and not is_crumb:
                await self._send(job, stop, now)
            elif now.error is not None and not is_crumb:
                raise now.error
            elif now.state == "done" and self.sent == now.n_samples:
                return await self._tell_done(job, now)
            else:
                await reader.change(
                    self._patience_s()
                    if self.is_held_back
                    else LOOK_AGAIN_S
                    if self.credit is None and now.n_samples > self.sent
                    else None
                )

    def _patience_s(self) -> float:
        """How much longer it may wait for credit."""
        return self._moved_s + self._socket.idle_s - time.monotonic()

    def _check_talk(self) -> None:
        """Raises what ends it although there may be more to send."""
        if self._holder.error is not None:
            raise self._holder.error
        if self.is_held_back and self._patience_s() <= 0:
            raise unheard()

    def _may_send(self, rate: int) -> int:
        if self.credit is not None:
            return self.credit
        played_s = time.monotonic() - self._began_s if self._began_s is not None else 0.0
        return int((played_s + LEAD_S) * rate)

    async def _send(self, job: SpeechJob, stop: int, now: Snapshot) -> None:
        self._moved_s = time.monotonic()
        self._began_s = self._began_s if self._began_s is not None else self._moved_s
        start, self.sent, self._frames = (
            self.sent,
            stop,
            self._frames + 1,
        )  # counted as sent from here on: it may be, though this is cancelled
        began, sound = time.perf_counter(), job.pcm(start, stop)
        if self._is_base64:
            await self.tell(
                "speech.audio.delta", start=start, audio=base64.b64encode(sound).decode()
            )
        else:
            is_last = now.state in ("saving", "done") and stop == now.n_samples
            await self._socket.send_bytes(FRAME.pack(MAGIC, is_last, self.number, start) + sound)
        job.trace.add_sending(time.perf_counter() - began)

    # ---- what is told ----------------------------------------------------------------------------
    async def tell(self, kind: str, **told) -> None:
        await self._socket.tell({"type": kind, "request": self.number, **told})

    async def _tell_position(self, now: Snapshot) -> None:
        if now.position and now.position != self._told_position:
            self._told_position = now.position
            await self.tell(
                "speech.queued",
                position=now.position,
                eta_s=round(self._studio.job_runner.admission.eta_s(now.position)),
            )

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

    async def _tell_sentences(self, now: Snapshot) -> None:
        for index, start in now.marks[self._told_marks :]:
            await self.tell(
                "speech.sentence", index=index, start=start, text=self.written.pieces[index]
            )
        self._told_marks = len(now.marks)

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
