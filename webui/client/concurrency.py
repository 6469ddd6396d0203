"""How many requests at once: one more for each round that goes well, half after a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..errors import Busy, NotReady


class Concurrency:
    """most: never more than these, with which it begins. Of one event loop."""

    def __init__(self, most: int):
        self._most, self.limit = most, float(most)
        self._n_open = self._n_begun = 0
        # requests that began before the last halving say nothing new of what it was for
        self._halved_at = 0
        self._waiters: list[asyncio.Future] = []

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Around one request; waits for its turn."""
        while self._n_open >= int(self.limit):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        number, self._n_begun = self._n_begun, self._n_begun + 1
        self._n_open += 1
        try:
            yield
            self.limit = min(self._most, self.limit + 1 / self.limit)
        except (Busy, NotReady):
            if number >= self._halved_at:
                self.limit, self._halved_at = max(1.0, self.limit / 2), self._n_begun
            raise
        finally:
            self._n_open -= 1
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
