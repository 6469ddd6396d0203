"""The WebSocket of the page, protocol version 1 (streaming spec, section 3): one socket per page, one active job per socket."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import struct
import time

from fastapi import APIRouter, WebSocket
from pydantic import ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from ..errors import BadInput, KaikouError
from ..studio import Job, Snapshot, Studio
from .faults import wrong_field
from .fields import read_json
from .holder import Holder
from .reader import JobReader, open_job
from .recent import Recent
from .session import Sessions
from .speech import Speech

log = logging.getLogger(__name__)
MAGIC, FRAME = 0x4B01, struct.Struct("<HHIQ")
FRAME_S = (0.04, 0.08, 0.16, 0.2)  # first frame small, then growing
MAX_MESSAGE = 1 << 20  # a text far too long still gets its sentence
HELLO_S = 10.0


def routes(studio: Studio, sessions: Sessions, recent: Recent) -> APIRouter:
    router = APIRouter()

    @router.websocket("/tts/ws")
    async def ws(socket: WebSocket):
        await socket.accept()
        await Connection(socket, studio, sessions, recent).serve()

    return router


class BadMessage(Exception):
    """What came is not our protocol: the socket is closed with 1008 or 1009."""

    def __init__(self, why: str, code: int = 1008):
        super().__init__(why)
        self.code = code


class Connection:
    """All state of one socket. The reader task takes messages; at most one sender task speaks."""

    def __init__(self, socket: WebSocket, studio: Studio, sessions: Sessions, recent: Recent):
        self._socket, self._studio, self._sessions, self._recent = socket, studio, sessions, recent
        self._holder, self._owner, self._locale = Holder(studio, socket.scope), "", "en"
        self._sender: asyncio.Task | None = None
        self._seq, self._credit, self._reader = -1, 0, None

    async def serve(self) -> None:
        try:
            await self._hello()
            while True:
                await self._take(await self._message())
        except WebSocketDisconnect:
            pass
        except BadMessage as bad:
            await self._close(bad.code, str(bad))
        finally:
            await self._stop()

    async def _close(self, code: int, why: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            await self._socket.close(code, why[:120])

    async def _message(self) -> dict:
        raw = await self._socket.receive()
        if raw["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(raw.get("code", 1006))
        text = raw.get("text")
        if text is None or len(text) > MAX_MESSAGE:
            raise BadMessage("text frames of at most 1 MiB only", 1009 if text else 1008)
        try:
            told = read_json(text)
        except ValueError:
            raise BadMessage("not JSON") from None
        if not isinstance(told, dict):
            raise BadMessage("not an object")
        return told

    async def _hello(self) -> None:
        try:
            told = await asyncio.wait_for(self._message(), HELLO_S)
        except TimeoutError:
            raise BadMessage("no hello") from None
        owner = self._sessions.owner_of_token(str(told.get("token", "")))
        account = self._socket.scope["kk_owner"].partition("/")[0]
        if told.get("op") != "hello" or not owner or owner.partition("/")[0] != account:
            raise BadMessage("hello with a valid token expected")
        self._owner = owner
        self._set_locale(told)
        await self._send({"op": "ready", "v": 1, "limits": self._studio.limits()})

    def _set_locale(self, told: dict) -> None:
        self._locale = "zh" if str(told.get("locale", "")).startswith("zh") else "en"

    async def _take(self, told: dict) -> None:
        op = told.get("op")
        if op == "start":
            await self._start(told)
        elif op == "credit" and told.get("seq") == self._seq:
            self._raise_credit(_whole(told, "upto"))
        elif op == "cancel" and told.get("seq") == self._seq:
            await self._stop(tell=True)
        elif op == "ping":
            await self._send({"op": "pong", "t": told.get("t")})
        elif op == "locale":
            self._set_locale(told)
        elif op not in ("credit", "cancel"):
            raise BadMessage("unknown op")

    async def _start(self, told: dict) -> None:
        """A new start silences the one before it: frames of another seq are dropped by the client, and its job is cancelled here."""
        seq, credit = _whole(told, "seq"), _whole(told, "credit")
        await self._stop()
        self._seq, self._credit = seq, credit
        self._sender = asyncio.create_task(self._speak(seq, told))

    def _raise_credit(self, upto: int) -> None:
        self._credit = max(self._credit, upto)
        if self._reader is not None:
            self._studio.turns.credit(self._reader.job, self._credit)
            self._reader.poke()

    async def _stop(self, tell: bool = False) -> None:
        sender, self._sender = self._sender, None
        reader = self._reader
        if sender is not None:
            was_on = not sender.done()
            sender.cancel()
            await asyncio.wait([sender])
            if tell and was_on:
                await self._send(
                    {
                        "op": "cancelled",
                        "seq": self._seq,
                        "samples": reader.job.produced if reader else 0,
                    }
                )

    async def _send(self, told: dict) -> None:
        """A socket that is gone is no fault here: the reader task finds out and ends the connection."""
        try:
            await self._socket.send_text(json.dumps(told, ensure_ascii=False))
        except (WebSocketDisconnect, RuntimeError, OSError):
            log.debug("the socket went away before %s", told.get("op"))

    # ---- the sender -----------------------------------------------------------------------------------------
    async def _speak(self, seq: int, told: dict) -> None:
        try:
            job, start = await self._job(told)
            async with JobReader(self._studio, job) as self._reader:
                self._recent.keep(job)
                await self._pour(seq, self._reader, start)
        except KaikouError as error:
            await self._tell_error(seq, error)
        except (WebSocketDisconnect, RuntimeError, OSError):
            log.debug("the socket went away in mid-stream")
        except Exception:
            log.exception("stream %s failed", seq)
            await self._tell_error(
                seq,
                KaikouError(
                    "Something went wrong here. Please try again.", "这里出了点问题，请再试一次。"
                ),
            )
        finally:
            self._reader = None

    async def _tell_error(self, seq: int, error: KaikouError) -> None:
        retry = None if error.retry_after_s is None else math.ceil(error.retry_after_s)
        await self._send(
            {
                "op": "error",
                "seq": seq,
                "code": error.code,
                "text": error.sentence(self._locale),
                "retry": retry,
                "param": error.param,
            }
        )

    async def _job(self, told: dict) -> tuple[Job, int]:
        self._holder.ask()
        if "job" in told:
            return await self._resume(told)
        try:
            body = Speech.model_validate(told.get("params"))
        except ValidationError as error:
            raise wrong_field(error) from None
        return await open_job(self._studio, lambda: body.open(self._studio, self._owner)), 0

    async def _resume(self, told: dict) -> tuple[Job, int]:
        """The rest of a stream whose socket broke: from memory when it was finished, else the same request again (same seed, same samples)."""
        old, start = self._recent.find(told["job"], self._owner), _whole(told, "from")
        if old is None:
            raise BadInput(
                "This stream is no longer here. Generate it again.",
                "这条流已经不在了，请重新生成。",
                code="stream_gone",
                param="job",
            )
        if old.snapshot().state in ("saving", "done"):
            return old, start
        return await open_job(self._studio, lambda: self._studio.speaker.again(old)), start

    async def _pour(self, seq: int, reader: JobReader, sent: int) -> None:
        job, frames, told_position, told_marks, is_begun = reader.job, 0, 0, 0, False
        self._studio.turns.credit(job, self._credit)
        while True:
            now = await reader.change()
            if now.state == "waiting":
                if now.position and now.position != told_position:
                    told_position = now.position
                    await self._send(
                        {
                            "op": "queued",
                            "seq": seq,
                            "position": now.position,
                            "eta_s": round(self._studio.turns.admission.eta_s(now.position)),
                        }
                    )
                continue
            if not is_begun:
                is_begun = True
                notes = [zh if self._locale == "zh" else en for en, zh in job.notes]
                await self._send(
                    {"op": "begin", "seq": seq, **self._studio.about(job), "notes": notes}
                )
            for segment, at in now.marks[told_marks:]:
                await self._send(
                    {
                        "op": "info",
                        "seq": seq,
                        "sentence": segment,
                        "from": at,
                        "rtf": round(now.rtf, 4),
                    }
                )
            told_marks = len(now.marks)
            while sent < (
                stop := min(
                    now.n_samples,
                    self._credit,
                    sent + int(FRAME_S[min(frames, len(FRAME_S) - 1)] * job.rate),
                )
            ):
                is_last = now.state in ("saving", "done") and stop == now.n_samples
                began = time.perf_counter()
                await self._socket.send_bytes(
                    FRAME.pack(MAGIC, is_last, seq & 0xFFFFFFFF, sent) + job.pcm(sent, stop)
                )
                job.trace.sent(time.perf_counter() - began)
                sent, frames = stop, frames + 1
            if now.error is not None and (sent >= now.n_samples or sent >= self._credit):
                raise now.error
            if now.state == "done" and sent >= now.n_samples:
                return await self._end(seq, job, now)

    async def _end(self, seq: int, job: Job, now: Snapshot) -> None:
        told = {
            "op": "end",
            "seq": seq,
            "job": job.id,
            "samples": now.n_samples,
            "url": f"/tts/result/{job.id}.wav" if now.saved else None,
            "rtf": round(now.rtf, 4),
            "wall_s": round(job.made_in_s, 3),
            "seed": job.request.seed,
            "trace": job.trace.told(),
        }
        if now.save_error is not None:
            told |= {"code": now.save_error.code, "text": now.save_error.sentence(self._locale)}
        await self._send(told)


def _whole(told: dict, key: str) -> int:
    value = told.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise BadMessage(f"{key} must be a whole number")
    return value
