"""The WebSocket for a text that is still being written (docs/api-text-in.md): deltas in, sound out by clause, flush, cancel, barge-in.

One socket, one request at a time. A message that is refused leaves the request as it was; a new `start` ends the one before it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from typing import Literal

from fastapi import APIRouter, WebSocket
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect, WebSocketState

from ..errors import BadInput, KaikouError, TooLarge
from ..studio import Job, Snapshot, Studio, Written
from ..types import Abilities
from .faults import wrong_field
from .formats import usage
from .guard import language_of
from .holder import Holder
from .inline import named
from .reader import JobReader, open_job
from .recent import Recent
from .speech import Speech
from .stream import FRAME, FRAME_S, MAGIC, MAX_MESSAGE

log = logging.getLogger(__name__)
PATH = "/v1/audio/speech/stream"
LEAD_S = 5.0  # a listener that gives no credit is served at most this far ahead of the wall clock
LOOK_AGAIN_S = 0.1  # whether the clock has gone on; less than that is not sent by itself, or the clock's every step would be a frame
INLINE_CHARS = 200  # a longer delta is normalised off the event loop
PROTOCOL, NO_BINARY, TOO_BIG = 1008, 1003, 1009
MESSAGES = ("start", "text", "flush", "end", "cancel", "credit")


class Start(Speech):
    """The fields of /v1/audio/speech but the text."""

    input: str = ""
    audio: Literal["binary", "base64"] = "binary"
    credit: int | None = Field(None, ge=0, lt=1 << 53, description="Samples that may be sent before the next `credit`; none: as they are played, five seconds ahead")


class Close(Exception):
    """What came is not our protocol. `error` is told before the socket is closed with `code`."""

    def __init__(self, code: int, error: KaikouError):
        super().__init__(error.code)
        self.code, self.error = code, error


def routes(studio: Studio, recent: Recent, idle_s: float) -> APIRouter:
    router = APIRouter()

    @router.websocket(PATH)
    async def speak(socket: WebSocket):
        await socket.accept()
        await Line(socket, studio, recent, idle_s).serve()

    return router


class Talk:
    """One request: what was asked, what has been written, what is spoken of it, how much of that was sent."""

    def __init__(self, line: Line, number: int, start: Start, asked: dict, written: Written):
        self.number, self.written, self.credit, self.sent = number, written, start.credit, 0
        self._line, self._asked, self._is_base64, self._transcript_field = line, asked, start.audio == "base64", start.transcript_field
        self._has_words = asyncio.Event()
        self._reader: JobReader | None = None
        self._frames, self._told_position, self._told_marks, self._began_s = 0, 0, 0, None
        self.task = asyncio.create_task(self._run())

    # ---- the writer's side --------------------------------------------------------------------------------
    async def write(self, delta: str) -> None:
        """Raises BadInput."""
        if self.written.is_over:
            raise BadInput("The text was ended before this came. Start another request.", "文本已经结束，请另起一次请求。", param="type", code="text_over")
        if len(delta) > INLINE_CHARS:
            await run_in_threadpool(self.written.push, delta)
        else:
            self.written.push(delta)
        self.look()

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
            self.credit = upto
            if self._reader is not None:
                self._reader.poke()

    async def stop(self) -> bool:
        """True when it was not over yet. Nothing is sent of it afterwards."""
        was_on = not self.task.done()
        self.task.cancel()
        await asyncio.wait([self.task])
        return was_on

    # ---- the speaker's side -------------------------------------------------------------------------------
    async def _run(self) -> None:
        line = self._line
        try:
            await self._has_words.wait()
            job = await self._open()
            async with JobReader(line.studio, job) as self._reader:
                line.recent.keep(job)
                await self._pour(job, self._reader)
        except KaikouError as error:
            await self.tell("speech.failed", samples=self.sent, **line.words_of(error))
        except (WebSocketDisconnect, RuntimeError, OSError):
            log.debug("the socket went away in mid-speech")
        except Exception:
            log.exception("request %d of a socket failed", self.number)
            await self.tell("speech.failed", samples=self.sent, **line.words_of(KaikouError("Something went wrong here. Please try again.", "这里出了点问题，请再试一次。")))
        finally:
            self._reader = None

    async def _open(self) -> Job:
        written, studio = self.written, self._line.studio
        if not written.first:
            raise BadInput("Write something to say first: the text has no letters or digits.", "先写点要说的话：文本里没有可读的字。", param="delta", code="no_text")
        with named("ref_audio", self._transcript_field):
            return await open_job(studio, lambda: studio.speaker.open(self._line.owner, text_in=written.first, written=written, **self._asked))

    async def _pour(self, job: Job, reader: JobReader) -> None:
        studio, is_begun = self._line.studio, False
        while True:
            may = self._may_send(job.rate)
            studio.turns.credit(job, may)
            now = job.snapshot()
            if now.state == "waiting":
                await self._tell_position(now)
                await reader.change()
                continue
            if not is_begun:
                is_begun = True
                await self._tell_begin(job)
            await self._tell_sentences(now)
            stop = min(now.n_samples, may, self.sent + int(FRAME_S[min(self._frames, len(FRAME_S) - 1)] * job.rate))
            is_crumb = self.credit is None and stop == may < now.n_samples and stop - self.sent < LOOK_AGAIN_S * job.rate
            if stop > self.sent and not is_crumb:
                await self._send(job, stop, now)
            elif now.error is not None and not is_crumb:
                raise now.error
            elif now.state == "done" and self.sent == now.n_samples:
                return await self._tell_done(job, now)
            else:
                await reader.change(LOOK_AGAIN_S if self.credit is None and now.n_samples > self.sent else None)

    def _may_send(self, rate: int) -> int:
        if self.credit is not None:
            return self.credit
        played_s = time.monotonic() - self._began_s if self._began_s is not None else 0.0
        return int((played_s + LEAD_S) * rate)

    async def _send(self, job: Job, stop: int, now: Snapshot) -> None:
        self._began_s = self._began_s if self._began_s is not None else time.monotonic()
        start, self.sent, self._frames = self.sent, stop, self._frames + 1  # counted as sent from here on: it may be, though this is cancelled
        began, sound = time.perf_counter(), job.pcm(start, stop)
        if self._is_base64:
            await self.tell("speech.audio.delta", start=start, audio=base64.b64encode(sound).decode())
        else:
            is_last = now.state in ("saving", "done") and stop == now.n_samples
            await self._line.send_bytes(FRAME.pack(MAGIC, is_last, self.number, start) + sound)
        job.trace.sent(time.perf_counter() - began)

    # ---- what is told ---------------------------------------------------------------------------------------
    async def tell(self, kind: str, **told) -> None:
        await self._line.tell({"type": kind, "request": self.number, **told})

    async def _tell_position(self, now: Snapshot) -> None:
        if now.position and now.position != self._told_position:
            self._told_position = now.position
            await self.tell("speech.queued", position=now.position, eta_s=round(self._line.studio.turns.admission.eta_s(now.position)))

    async def _tell_begin(self, job: Job) -> None:
        notes = [zh if self._line.language == "zh" else en for en, zh in job.notes]
        await self.tell("speech.begin", job=job.id, rate=job.rate, channels=1, seed=job.request.seed, engine=job.engine, voice=job.voice.id, mode=job.request.mode, notes=notes)

    async def _tell_sentences(self, now: Snapshot) -> None:
        for index, start in now.marks[self._told_marks:]:
            await self.tell("speech.sentence", index=index, start=start, text=self.written.pieces[index])
        self._told_marks = len(now.marks)

    async def _tell_done(self, job: Job, now: Snapshot) -> None:
        request = job.request
        problem = {} if now.save_error is None else self._line.words_of(now.save_error)
        await self.tell("speech.audio.done", job=job.id, samples=now.n_samples, seed=request.seed, url=f"/tts/result/{job.id}.wav" if now.saved else None,
                        usage=usage(request.text, request.instruction, now.n_samples, job.rate), **problem)


class Line:
    """All state of one socket: who is there, and the request under way."""

    def __init__(self, socket: WebSocket, studio: Studio, recent: Recent, idle_s: float):
        self.studio, self.recent, self.owner = studio, recent, socket.scope["kk_owner"]
        self.language, self._holder = language_of(dict(socket.scope["headers"])), Holder(studio, socket.scope)
        self._socket, self._idle_s = socket, idle_s
        self._talk: Talk | None = None
        self._n_requests = 0
        self._stirred_s = time.monotonic()  # when something came or went last

    async def serve(self) -> None:
        try:
            while True:
                await self._take(await self._message())
        except WebSocketDisconnect:
            pass
        except Close as close:
            await self._stop()
            await self.tell({"type": "error", "request": None, **self.words_of(close.error)})
            await self._close(close.code, close.error.code)
        finally:
            await self._stop()

    # ---- in -------------------------------------------------------------------------------------------------
    async def _message(self) -> dict:
        raw = await self._receive()
        if raw["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(raw.get("code", 1006))
        text = raw.get("text")
        if text is None:
            raise Close(NO_BINARY, BadInput("Only text messages are taken here: JSON objects.", "这里只收文本消息（JSON 对象）。", code="no_binary"))
        if len(text) > MAX_MESSAGE:
            raise Close(TOO_BIG, TooLarge("A message may be 1 MB at most.", "每条消息最多 1 MB。", code="message_too_large"))
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            raise Close(PROTOCOL, BadInput("The message is not valid JSON.", "消息不是有效的 JSON。", code="bad_json")) from None
        if not isinstance(told, dict):
            raise Close(PROTOCOL, BadInput("The message is not a JSON object.", "消息不是 JSON 对象。", code="bad_json"))
        return told

    async def _receive(self) -> dict:
        """The next message. Whoever is silent too long while it is their turn is not waited for any longer."""
        self._stirred_s = time.monotonic()
        coming = asyncio.ensure_future(self._socket.receive())
        try:
            while not coming.done():
                left_s = self._stirred_s + self._idle_s - time.monotonic()
                if left_s <= 0 and self._is_their_turn:
                    raise Close(PROTOCOL, BadInput(f"Nothing came for {self._idle_s:g} s.", f"{self._idle_s:g} 秒内没有收到消息。", code="idle"))
                await asyncio.wait([coming], timeout=left_s if left_s > 0 else self._idle_s)
            return coming.result()
        finally:
            coming.cancel()

    @property
    def _is_their_turn(self) -> bool:
        talk = self._talk
        return talk is None or talk.task.done() or not talk.written.is_over or talk.is_held_back

    async def _take(self, told: dict) -> None:
        kind = told.get("type")
        try:
            if kind == "start":
                await self._start(told)
            elif kind == "cancel":
                await self._stop(tell=True)
            elif kind not in MESSAGES:
                raise BadInput(f"Unknown message. Use one of: {', '.join(MESSAGES)}.", f"不认识的消息，可用：{'、'.join(MESSAGES)}。", param="type", code="bad_type")
            elif self._talk is None:
                raise BadInput("Send start first.", "请先发送 start。", param="type", code="no_request")
            elif not self._talk.task.done():  # what comes after its end was on its way
                await self._go_on(self._talk, kind, told)
        except KaikouError as error:
            number = self._talk.number if self._talk is not None and not self._talk.task.done() else None
            await self.tell({"type": "error", "request": number, **self.words_of(error)})

    async def _go_on(self, talk: Talk, kind: str, told: dict) -> None:
        if kind == "credit":
            talk.raise_credit(_whole(told, "upto"))
        elif kind == "text":
            delta = told.get("delta")
            if not isinstance(delta, str):
                raise BadInput("delta must be a string.", "delta 须是字符串。", param="delta", code="bad_field")
            await talk.write(delta)
        else:
            await run_in_threadpool(talk.written.flush if kind == "flush" else talk.written.end)
            talk.look()

    async def _start(self, told: dict) -> None:
        """The one before it is silenced first, whatever comes of this one."""
        await self._stop(tell=True)
        self._talk = None
        self._holder.ask()
        try:
            start = Start.model_validate({k: v for k, v in told.items() if k != "type"})
        except ValidationError as error:
            raise wrong_field(error) from None
        if start.response_format not in (None, "pcm"):
            raise BadInput("Here the sound is always pcm: 16 bit, little-endian, mono.", "这里的声音固定为 pcm（16 位小端单声道）。", param="response_format", code="bad_format")
        asked, written, about = await run_in_threadpool(self._expect, start)
        self._n_requests += 1
        talk = self._talk = Talk(self, self._n_requests, start, asked, written)
        await talk.tell("speech.started", rate=about.sample_rate, channels=1, format="s16le", engine=about.name, limits={"max_text": self.studio.limits()["max_text"], "idle_s": self._idle_s})
        if start.input:
            await talk.write(start.input)

    def _expect(self, start: Start) -> tuple[dict, Written, Abilities]:
        asked = start.asked()
        with named("ref_audio", start.transcript_field):
            return asked, *self.studio.speaker.expect(self.owner, **asked)

    async def _stop(self, tell: bool = False) -> None:
        talk = self._talk
        if talk is not None and await talk.stop() and tell:
            await talk.tell("speech.cancelled", samples=talk.sent)

    # ---- out ------------------------------------------------------------------------------------------------
    def words_of(self, error: KaikouError) -> dict:
        told = {"error": {"message": error.sentence(self.language), "type": error.kind, "param": error.param, "code": error.code}}
        return told if error.retry_after_s is None else told | {"retry_after_s": error.retry_after_s}

    async def tell(self, told: dict) -> None:
        """A socket that is gone is no fault here: whoever reads it finds out."""
        self._stirred_s = time.monotonic()
        try:
            await self._socket.send_text(json.dumps(told, ensure_ascii=False))
        except (WebSocketDisconnect, RuntimeError, OSError):
            log.debug("the socket went away before %s", told.get("type"))

    async def send_bytes(self, data: bytes) -> None:
        self._stirred_s = time.monotonic()
        await self._socket.send_bytes(data)

    async def _close(self, code: int, why: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            await self._socket.close(code, why)


def _whole(told: dict, key: str) -> int:
    value = told.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise BadInput(f"{key} must be a whole number.", f"{key} 须是整数。", param=key, code="bad_field")
    return value
