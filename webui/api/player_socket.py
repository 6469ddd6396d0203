"""The WebSocket of the page, protocol version 1 (streaming spec, section 3): one socket per page,
one active job per socket.
"""

from __future__ import annotations

import asyncio
import math
import struct
from contextlib import ExitStack, suppress
from functools import partial

from fastapi import APIRouter, WebSocket
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect

from ..errors import BadInput, KaikouError
from ..studio import ENGINE_CHANGE, Snapshot, SpeechJob, Studio, is_guest, job_reader, open_job
from .auth import Sessions
from .error_handlers import wrong_field
from .recent_jobs import RecentJobs
from .speech import Speech
from .text_socket.protocol import PROTOCOL, Close, JsonSocket, report_errors

MAGIC, FRAME = 0x4B01, struct.Struct("<HHIQ")
FRAME_S = (0.04, 0.08, 0.16, 0.2)  # first frame small, then growing
HELLO_S = 10.0


def routes(
    studio: Studio, sessions: Sessions, recent_jobs: RecentJobs, silent_s: float
) -> APIRouter:
    router = APIRouter()

    @router.websocket("/tts/ws")
    async def ws(socket: WebSocket):
        await socket.accept()
        await Connection(socket, studio, sessions, recent_jobs, silent_s).serve()

    return router


class Connection:
    """All state of one socket. The reader task takes messages; at most one sender task speaks.

    silent_s: a socket on which nothing is spoken and nothing comes is closed after that, and a
      stream without credit ended.
    """

    def __init__(
        self,
        socket: WebSocket,
        studio: Studio,
        sessions: Sessions,
        recent_jobs: RecentJobs,
        silent_s: float,
    ):
        self._studio, self._sessions, self._recent = studio, sessions, recent_jobs
        self._socket, self._holder = JsonSocket(socket, silent_s), socket.scope["kk_holder"]
        self._account, self._owner = socket.scope["kk_owner"].partition("/")[0], ""
        self._sender: asyncio.Task | None = None
        self._seq, self._pacing, self._reader = -1, job_reader.Pacing(), None

    async def serve(self) -> None:
        self._holder.listen(self._poke)
        watches = ExitStack()
        try:
            self._follow(await self._hello(), watches)
            while True:
                await self._take(await self._socket.message(self._is_their_turn))
        except WebSocketDisconnect:
            pass
        except Close as close:
            await self._socket.close(close.code, close.error.code)
        finally:
            watches.close()
            await self._stop()

    def _follow(self, hello: dict, watches: ExitStack) -> None:
        """The page is told that something changed, and asks itself what there is now: the visitor's
        takes, made here or in another tab, and the state of the engine where the page asked for
        that. A guest of a demo link is told nothing of the engine.
        """
        loop = asyncio.get_running_loop()
        news: set[asyncio.Task] = set()  # the loop itself holds its tasks weakly

        def tell(op: str) -> None:
            if self._holder.error is not None:
                return  # the right to be here has ended
            news.add(task := loop.create_task(self._socket.tell({"op": op})))
            task.add_done_callback(news.discard)

        def wake(op: str) -> None:
            # asked here, in the thread that writes the take: once that is done the stream may end
            # before the loop comes to `tell`
            job = self._reader.job if self._reader is not None else None
            if op == "takes" and job is not None and job.snapshot().state in ("saving", "done"):
                return  # the end of its own stream says so
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell, op)

        watches.callback(self._studio.takes.watch(self._owner, partial(wake, "takes")))
        if hello.get("engine") is True and not is_guest(self._owner):
            watches.callback(self._studio.changes.add(ENGINE_CHANGE, partial(wake, "engine")))

    def _is_their_turn(self) -> bool:
        return self._sender is None or self._sender.done()

    def _poke(self) -> None:
        self._pacing.error = self._holder.error
        if self._reader is not None:
            self._reader.poke()

    async def _hello(self) -> dict:
        try:
            message = await asyncio.wait_for(self._socket.message(self._is_their_turn), HELLO_S)
        except TimeoutError:
            raise _bad("bad_message.no_hello") from None
        owner = self._sessions.owner_of_token(str(message.get("token", "")))
        if message.get("op") != "hello" or not owner or owner.partition("/")[0] != self._account:
            raise _bad("bad_message.hello_expected")
        self._owner = owner
        self._set_locale(message)
        await self._socket.tell({"op": "ready", "v": 1, "limits": self._studio.limits()})
        return message

    def _set_locale(self, message: dict) -> None:
        self._socket.language = "zh" if str(message.get("locale", "")).startswith("zh") else "en"

    async def _take(self, message: dict) -> None:
        if message.get("op") == "start":  # asks for itself
            return await self._start(message)
        try:
            await self._holder.check()
            await self._heed(message)
        except KaikouError as error:
            if self._is_their_turn():  # else the sender says so
                await self._tell_error(self._seq, error)

    async def _heed(self, message: dict) -> None:
        op = message.get("op")
        if op == "credit" and message.get("seq") == self._seq:
            self._pacing.raise_credit(_whole(message, "upto"))
            self._poke()
        elif op == "cancel" and message.get("seq") == self._seq:
            await self._stop(is_given_up=True, tell=True)
        elif op == "ping":
            await self._socket.tell({"op": "pong", "t": message.get("t")})
        elif op == "locale":
            self._set_locale(message)
        elif op not in ("credit", "cancel"):
            raise _bad("bad_message.unknown_op")

    async def _start(self, message: dict) -> None:
        """A new start silences the one before it: frames of another seq are dropped by the client,
        and its job is cancelled here.
        """
        seq, credit = _whole(message, "seq"), _whole(message, "credit")
        await self._stop(is_given_up=True)
        self._seq = seq
        self._pacing = job_reader.Pacing(
            credit, piece_s=FRAME_S, patience_s=self._socket.idle_s, error=self._holder.error
        )
        self._sender = asyncio.create_task(self._speak(seq, message))

    async def _stop(self, is_given_up: bool = False, tell: bool = False) -> None:
        """is_given_up: by the listener; else its socket went away."""
        sender, self._sender = self._sender, None
        reader = self._reader
        if reader is not None and is_given_up:
            reader.job.playback.give_up()
        if sender is not None:
            was_on = not sender.done()
            sender.cancel()
            await asyncio.wait([sender])
            if tell and was_on:
                await self._socket.tell(
                    {
                        "op": "cancelled",
                        "seq": self._seq,
                        "samples": reader.job.produced if reader else 0,
                    }
                )

    # ---- the sender ------------------------------------------------------------------------------
    async def _speak(self, seq: int, message: dict) -> None:
        async with report_errors(partial(self._tell_error, seq)):
            try:
                job, self._pacing.n_sent = await self._job(message)
                async with job_reader.JobReader(self._studio, job, self._pacing) as self._reader:
                    self._recent.keep(job)
                    await self._pour(seq, self._reader)
            finally:
                self._reader = None

    async def _tell_error(self, seq: int, error: KaikouError) -> None:
        retry = None if error.retry_after_s is None else math.ceil(error.retry_after_s)
        await self._socket.tell(
            {
                "op": "error",
                "seq": seq,
                "code": error.code,
                "text": error.sentence(self._socket.language),
                "retry": retry,
                "param": error.param,
            }
        )

    async def _job(self, message: dict) -> tuple[SpeechJob, int]:
        await self._holder.ask()
        if "job" in message:
            return await self._resume(message)
        try:
            body = Speech.model_validate(message.get("params"))
        except ValidationError as error:
            raise wrong_field(error) from None
        return await open_job(self._studio, lambda: body.open(self._studio, self._owner)), 0

    async def _resume(self, message: dict) -> tuple[SpeechJob, int]:
        """The rest of a stream whose socket broke."""
        old, start = self._recent.find(message["job"], self._owner), _whole(message, "from")
        if old is None:
            raise BadInput("stream_gone", param="job")
        return await open_job(
            self._studio, lambda: self._studio.synthesis.resume(old, start)
        ), start

    async def _pour(self, seq: int, reader: job_reader.JobReader) -> None:
        job, tell = reader.job, self._socket.tell
        async for event in reader:
            match event:
                case job_reader.QueuePosition():
                    await tell({"op": "queued", "seq": seq, **event._asdict()})
                case job_reader.JobStart():
                    notes = [zh if self._socket.language == "zh" else en for en, zh in job.notes]
                    about = self._studio.about(job)
                    await tell({"op": "begin", "seq": seq, **about, "notes": notes})
                case job_reader.SentenceStart(index, start, rtf):
                    place = {"sentence": index, "from": start, "rtf": round(rtf, 4)}
                    await tell({"op": "info", "seq": seq, **place})
                case job_reader.SampleRange(start, stop, is_last):
                    head = FRAME.pack(MAGIC, is_last, seq & 0xFFFFFFFF, start)
                    with job.trace.sending():
                        await self._socket.send_bytes(head + job.pcm(start, stop))
                    job.playback.reached(stop)
                case Snapshot():
                    await self._end(seq, job, event)

    async def _end(self, seq: int, job: SpeechJob, now: Snapshot) -> None:
        message = {
            "op": "end",
            "seq": seq,
            "job": job.id,
            "samples": now.n_samples,
            "url": f"/tts/result/{job.id}.wav" if now.saved else None,
            "rtf": round(now.rtf, 4),
            "wall_s": round(job.made_in_s, 3),
            "seed": job.request.seed,
            "trace": job.trace.to_dict(),
        }
        if now.save_error is not None:
            message |= {
                "code": now.save_error.code,
                "text": now.save_error.sentence(self._socket.language),
            }
        await self._socket.tell(message)


def _bad(key: str, **values: object) -> Close:
    """What came is not our protocol."""
    return Close(PROTOCOL, BadInput(key, **values))


def _whole(message: dict, key: str) -> int:
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise _bad("bad_message.not_whole", name=key)
    return value
