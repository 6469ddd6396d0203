"""One request in the engine's process: its iterator, and its text while that arrives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from ...errors import Cancelled, KaikouError
from ...types import Chunk
from .watchdog import Watchdog

log = logging.getLogger(__name__)


class Stream:
    """One request's iterator, made by `begin` at its first step.

    `pieces` takes its text when that is still arriving; all else is done in its lane, an executor
    of one thread: no stream is ever stepped by two at once.
    """

    def __init__(self, number: int, request_id: str, lane: ThreadPoolExecutor):
        self.number, self.request_id, self.lane = number, request_id, lane
        self.begin: Callable[[], Iterator[Chunk]] = lambda: iter(())
        self.pieces: SimpleQueue[str | KaikouError | None] = SimpleQueue()
        self._iterator: Iterator[Chunk] | None = None
        self._is_closed = False

    def step(self) -> Chunk | None:
        if self._is_closed:
            raise Cancelled()
        if self._iterator is None:
            self._iterator = self.begin()
        return next(self._iterator, None)

    def close(self) -> None:
        self._is_closed = True
        if self._iterator is not None:
            try:
                self._iterator.close()
            except Exception:  # nobody waits for it
                log.exception("closing a stream failed")

    def arriving(self, stir: Watchdog, ask_for_piece: Callable[[int], None]) -> Iterator[str]:
        """Text from the studio, asked for one piece at a time, by whichever thread of the engine
        reads it. Waiting for a person is no stillness of the engine. Ends when the stream is
        closed.
        """
        while not self._is_closed:
            ask_for_piece(self.number)
            with stir.resting(self.number):
                piece = self.pieces.get()
            if isinstance(piece, KaikouError):
                raise piece
            if piece is None:
                return
            yield piece
