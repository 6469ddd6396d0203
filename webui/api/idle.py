"""How long a conversation may rest: as long as somebody is there to go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import BadInput

T = TypeVar("T")


class Idle:
    def __init__(self, idle_s: float):
        self.idle_s, self._stirred_s = idle_s, time.monotonic()

    def stir(self) -> None:
        """Something came or went."""
        self._stirred_s = time.monotonic()

    async def wait(self, message: Awaitable[T], is_their_turn: Callable[[], bool]) -> T:
        """The message. Whoever is silent too long while it is their turn is not waited for any
        longer: raises BadInput.
        """
        self.stir()
        task = asyncio.ensure_future(message)
        try:
            while not task.done():
                left_s = self._stirred_s + self.idle_s - time.monotonic()
                if left_s <= 0 and is_their_turn():
                    raise BadInput("idle.socket", idle_s=self.idle_s)
                await asyncio.wait([task], timeout=left_s if left_s > 0 else self.idle_s)
            return task.result()
        finally:
            task.cancel()
