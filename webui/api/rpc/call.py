"""One RPC that was let in, as the services see it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from ...errors import BadInput
from ..socket_auth import SocketAuth


class Call:
    """`owner`: whose voices and takes. `holder`: of the right that let it in.

    unread_s: a reader who takes nothing for so long is not waited for any more.
    """

    def __init__(self, context, owner: str, holder: SocketAuth, metadata, unread_s: float):
        self._context, self._unread_s = context, unread_s
        self.owner, self.holder = owner, holder
        self.language = language_of(metadata)
        self._sending: asyncio.Future | None = None

    async def begin(self, headers: dict[str, str | bytes]) -> None:
        """What is told before the first message."""
        metadata = tuple((name.lower(), value) for name, value in headers.items())
        await self._send(self._context.send_initial_metadata(metadata))

    async def write(self, message) -> None:
        """Returns when the connection has taken it: a slow reader holds the speaker back."""
        self.holder.glance()
        await self._send(self._context.write(message))

    async def _send(self, operation: Coroutine) -> None:
        """gRPC cannot take an operation back: it goes on when who waits for it is cancelled."""
        self._sending = asyncio.ensure_future(operation)
        self._sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
        try:
            async with asyncio.timeout(self._unread_s):
                await asyncio.shield(self._sending)
        except TimeoutError:
            raise BadInput("idle.listener_left") from None

    async def settle(self, limit_s: float) -> None:
        """Before the call is ended: what is being sent is sent, if its reader takes it."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=limit_s)


def language_of(metadata) -> str:
    """Of sentences, as a caller asks for it."""
    return "zh" if str(metadata.get("accept-language", "")).lower().startswith("zh") else "en"
