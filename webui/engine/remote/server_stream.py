"""What steps streams in the engine's process: one thread per lane, so that no stream is ever
stepped by two threads at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from ...errors import Cancelled, KaikouError
from ...types import Chunk
from .watchdog import Watchdog

log = logging.getLogger(__name__)


class StreamThread:
    """A thread that does what it is given, in order."""

    def __init__(self, name: str):
        self.name = name
        self._work: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, work: Callable[[], object]) -> None:
        self._work.put(work)

    def end(self) -> None:
        """After what has been put before."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:  # closing somebody's stream failed: the lane must live
                log.exception("a lane's work failed")


class Stream:
    """One request's iterator, made by `begin` at its first step.

    `pieces` takes its text when that is still arriving; all else is its lane's.
    """

    def __init__(self, number: int, request_id: str, lane: StreamThread):
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
            self._iterator.close()

    def arriving(self, stir: Watchdog, want: Callable[[int], None]) -> Iterator[str]:
        """Text from the studio, asked for one piece at a time, by whichever thread of the engine
        reads it. Waiting for a person is no stillness of the engine. Ends when the stream is
        closed.
        """
        while not self._is_closed:
            want(self.number)
            with stir.resting(self.number):
                piece = self.pieces.get()
            if isinstance(piece, KaikouError):
                raise piece
            if piece is None:
                return
            yield piece
