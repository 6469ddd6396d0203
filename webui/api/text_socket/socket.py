"""The WebSocket for a text that is still being written (docs/api-text-in.md): deltas in, sound out
by clause, flush, cancel, barge-in.

One socket, one request at a time. A message that is refused leaves the request as it was; a new
`start` ends the one before it.
"""

from __future__ import annotations

from fastapi import APIRouter, WebSocket
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocketDisconnect

from ...errors import BadInput, KaikouError
from ...studio import Studio, TextSource
from ...types import Abilities
from ..audio_field import with_param
from ..error_handlers import wrong_field
from ..player_socket import FRAME_S
from ..recent_jobs import RecentJobs
from ..text_session import TextSession
from .protocol import Close, JsonSocket
from .session import SocketSession, Start

PATH = "/v1/audio/speech/stream"
MESSAGES = ("start", "text", "flush", "end", "cancel", "credit")


def routes(studio: Studio, recent_jobs: RecentJobs, idle_s: float) -> APIRouter:
    router = APIRouter()

    @router.websocket(PATH)
    async def speak(socket: WebSocket):
        await socket.accept()
        await TextConnection(socket, studio, recent_jobs, idle_s).serve()

    return router


class TextConnection:
    """All state of one socket: who is there, and the request under way."""

    def __init__(self, socket: WebSocket, studio: Studio, recent_jobs: RecentJobs, idle_s: float):
        self._studio, self._recent, self._owner = studio, recent_jobs, socket.scope["kk_owner"]
        self._socket, self._holder = JsonSocket(socket, idle_s), socket.scope["kk_holder"]
        self._session: SocketSession | None = None
        self._n_requests = 0

    async def serve(self) -> None:
        self._holder.listen(self._poke)
        try:
            while True:
                await self._take(await self._socket.message(self._is_their_turn))
        except WebSocketDisconnect:
            pass
        except Close as close:
            await self._stop()
            await self._socket.tell(
                {"type": "error", "request": None, **self._socket.words_of(close.error)}
            )
            await self._socket.close(close.code, close.error.code)
        finally:
            await self._stop()

    def _poke(self) -> None:
        if self._session is not None:
            self._session.text.poke()

    def _is_their_turn(self) -> bool:
        session = self._session
        return session is None or session.task.done() or session.text.is_their_turn

    async def _take(self, message: dict) -> None:
        kind = message.get("type")
        try:
            if kind == "start":
                return await self._start(message)
            await self._holder.check()
            if kind == "cancel":
                await self._stop(tell=True)
            elif kind not in MESSAGES:
                raise BadInput("bad_type", messages=MESSAGES, param="type")
            elif self._session is None:
                raise BadInput("no_request", param="type")
            elif not self._session.task.done():  # what comes after its end was on its way
                await self._go_on(self._session.text, kind, message)
        except KaikouError as error:
            number = (
                self._session.number
                if self._session is not None and not self._session.task.done()
                else None
            )
            await self._socket.tell(
                {"type": "error", "request": number, **self._socket.words_of(error)}
            )

    async def _go_on(self, session: TextSession, kind: str, message: dict) -> None:
        if kind == "credit":
            session.raise_credit(_whole(message, "upto"))
        elif kind == "text":
            delta = message.get("delta")
            if not isinstance(delta, str):
                raise BadInput("bad_field.delta_not_string", param="delta")
            await session.write(delta)
        elif kind == "flush":
            await session.flush()
        else:
            await session.end()

    async def _start(self, message: dict) -> None:
        """The one before it is silenced first, whatever comes of this one."""
        await self._stop(tell=True)
        self._session = None
        await self._holder.ask()
        try:
            start = Start.model_validate({k: v for k, v in message.items() if k != "type"})
        except ValidationError as error:
            raise wrong_field(error) from None
        if start.response_format not in (None, "pcm"):
            raise BadInput("bad_format.socket_pcm", param="response_format")
        params, text_source, about = await run_in_threadpool(self._expect, start)
        self._n_requests += 1
        text = TextSession(
            self._studio,
            self._recent,
            self._owner,
            self._holder,
            params,
            text_source,
            start.credit,
            FRAME_S,
            self._socket.idle_s,
        )
        session = self._session = SocketSession(
            self._socket, self._n_requests, start.audio == "base64", text
        )
        await session.tell(
            "speech.started",
            rate=about.sample_rate,
            channels=1,
            format="s16le",
            engine=about.name,
            limits={"max_text": self._studio.limits()["max_text"], "idle_s": self._socket.idle_s},
        )
        if start.input:
            await text.write(start.input)

    def _expect(self, start: Start) -> tuple[dict, TextSource, Abilities]:
        params = start.to_params()
        with with_param("ref_audio"):
            return params, *self._studio.synthesis.open_text_stream(self._owner, **params)

    async def _stop(self, tell: bool = False) -> None:
        session = self._session
        if session is not None and await session.stop() and tell:
            await session.tell("speech.cancelled", samples=session.text.pacing.n_sent)


def _whole(message: dict, key: str) -> int:
    value = message.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise BadInput("bad_field.whole_number", param=key)
    return value
