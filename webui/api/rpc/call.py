"""One RPC that was let in, as the services see it."""

from __future__ import annotations

import asyncio

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

    async def begin(self, headers: dict[str, str | bytes]) -> None:
        """What is told before the first message."""
        await self._context.send_initial_metadata(
            tuple((name.lower(), value) for name, value in headers.items())
        )

    async def write(self, message) -> None:
        """Returns when the connection has taken it: a slow reader holds the speaker back."""
        self.holder.glance()
        try:
            async with asyncio.timeout(self._unread_s):
                await self._context.write(message)
        except TimeoutError:
            raise BadInput("idle.listener_left") from None


def language_of(metadata) -> str:
    """Of sentences, as a caller asks for it."""
    return "zh" if str(metadata.get("accept-language", "")).lower().startswith("zh") else "en"
