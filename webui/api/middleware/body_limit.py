"""The body of a request while it is read: counted, cut when it is too large, ended when it comes
too slowly. Knows bytes and seconds, not what they mean.
"""

from __future__ import annotations

import asyncio
import time

from ...errors import ClipTooLarge, KaikouError, TooLarge, TooSlow

SMALL_BODY = 1 << 20
BATCH_BODY = 16 << 20
GUEST_BODY = 64 << 10
BYTES_PER_S = 16_000  # slower than this, beyond the first seconds, nobody waits for


def too_large(limit: int) -> TooLarge:
    if limit <= SMALL_BODY:
        return TooLarge("body_too_large.request")
    if limit == BATCH_BODY:
        return TooLarge("body_too_large.batch")
    return ClipTooLarge()


class LimitedBody:
    """Stands between the server and the app.

    `refuse(send, error)` answers in the app's place; for the app the request then ends.
    """

    def __init__(self, receive, send, limit: int, patience_s: float, refuse):
        self._receive, self._send, self._limit, self._patience_s, self._refuse = (
            receive,
            send,
            limit,
            patience_s,
            refuse,
        )
        self._n_read, self.is_started, self._is_cut, self._is_whole = 0, False, False, False
        self._began_s = time.monotonic()

    async def receive(self):
        if self._is_cut:
            return {"type": "http.disconnect"}
        if self._is_whole:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._left_s())
        except TimeoutError:
            return await self._cut(TooSlow("too_slow"))
        if message["type"] == "http.request":
            self._n_read += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._n_read > self._limit:
                return await self._cut(too_large(self._limit))
        return message

    def _left_s(self) -> float:
        return max(
            0.001, self._began_s + self._patience_s + self._n_read / BYTES_PER_S - time.monotonic()
        )

    async def _cut(self, error: KaikouError) -> dict:
        self._is_cut = True
        if not self.is_started:
            await self._refuse(self._send, error)
        return {"type": "http.disconnect"}

    async def send(self, message):
        if self._is_cut and not self.is_started:
            return
        self.is_started = self.is_started or message["type"] == "http.response.start"
        await self._send(message)
