"""One WebSocket of JSON: whole messages in, as long as somebody is there to send them; objects and
sound out. Blind to what they mean.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from ...errors import BadInput, KaikouError, TooLarge
from ..fields import read_json
from ..idle import Idle
from ..middleware.access import language_of

log = logging.getLogger(__name__)
PROTOCOL, NO_BINARY, TOO_BIG = 1008, 1003, 1009
MAX_MESSAGE = 1 << 20  # a text far too long still gets its sentence


class Close(Exception):
    """What came is not our protocol. `error` is told before the socket is closed with `code`."""

    def __init__(self, code: int, error: KaikouError):
        super().__init__(error.code)
        self.code, self.error = code, error


@asynccontextmanager
async def report_errors(tell: Callable[[KaikouError], Awaitable[None]]) -> AsyncIterator[None]:
    """Around what speaks on a socket: what goes wrong is told, unless the socket is gone."""
    try:
        yield
    except KaikouError as error:
        await tell(error)
    except (WebSocketDisconnect, RuntimeError, OSError):
        log.debug("the socket went away in mid-speech")
    except Exception:
        log.exception("speech on a socket failed")
        await tell(KaikouError("fault.unexpected"))


class JsonSocket:
    def __init__(self, socket: WebSocket, idle_s: float):
        self._socket, self.idle_s, self.language = (
            socket,
            idle_s,
            language_of(dict(socket.scope["headers"])),
        )
        self._idle = Idle(idle_s)

    # ---- in --------------------------------------------------------------------------------------
    async def message(self, is_their_turn: Callable[[], bool]) -> dict:
        """The next one.

        Whoever is silent too long while it is their turn is not waited for any longer. Raises
        Close, WebSocketDisconnect.
        """
        raw = await self._receive(is_their_turn)
        if raw["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(raw.get("code", 1006))
        text = raw.get("text")
        if text is None:
            raise Close(NO_BINARY, BadInput("no_binary"))
        if len(text) > MAX_MESSAGE:
            raise Close(TOO_BIG, TooLarge("message_too_large"))
        try:
            message = read_json(text)
        except ValueError:
            raise Close(PROTOCOL, BadInput("bad_json.message")) from None
        if not isinstance(message, dict):
            raise Close(PROTOCOL, BadInput("bad_json.message_not_object"))
        return message

    async def _receive(self, is_their_turn: Callable[[], bool]) -> dict:
        try:
            return await self._idle.wait(self._socket.receive(), is_their_turn)
        except BadInput as error:
            raise Close(PROTOCOL, error) from None

    # ---- out -------------------------------------------------------------------------------------
    def words_of(self, error: KaikouError) -> dict:
        details = {
            "error": {
                "message": error.sentence(self.language),
                "type": error.kind,
                "param": error.param,
                "code": error.code,
            }
        }
        return (
            details
            if error.retry_after_s is None
            else details | {"retry_after_s": error.retry_after_s}
        )

    async def tell(self, message: dict) -> None:
        """A socket that is gone is no fault here: whoever reads it finds out."""
        self._idle.stir()
        try:
            await self._socket.send_text(json.dumps(message, ensure_ascii=False))
        except (WebSocketDisconnect, RuntimeError, OSError):
            log.debug("the socket went away before %s", message.get("type"))

    async def send_bytes(self, data: bytes) -> None:
        self._idle.stir()
        await self._socket.send_bytes(data)

    async def close(self, code: int, why: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            await self._socket.close(code, why[:120])
