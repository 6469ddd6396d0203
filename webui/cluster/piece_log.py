"""A text that is still being written, kept for the case that another replica must read it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from queue import SimpleQueue

from ..errors import EngineFault, KaikouError
from .connection import Connection, Lost

log = logging.getLogger(__name__)


class PieceLog:
    """The pieces of a text that is still being written, kept so that another replica can read them
    from the beginning. Taken from the writer in a thread of its own, which may wait.
    """

    def __init__(self, pieces: Iterator[str]):
        self._pieces, self._pieces_read = pieces, []
        self._requests: SimpleQueue[tuple[Connection, int] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="cluster-text", daemon=True).start()

    def send_piece(self, connection: Connection, n: int) -> None:
        """Piece `n` shall be sent on `connection`."""
        self._requests.put((connection, n))

    def close(self) -> None:
        self._requests.put(None)

    def _run(self) -> None:
        while (piece_request := self._requests.get()) is not None:
            connection, n = piece_request
            while len(self._pieces_read) <= n:
                self._pieces_read.append(self._next())
            try:
                connection.send({"op": "piece", **self._pieces_read[n]})
            except Lost:
                continue  # its stream asks again from another replica

    def _next(self) -> dict:
        try:
            return {"text": next(self._pieces, None)}
        except KaikouError as error:
            return {"error": error.to_dict()}
        except Exception:  # of whoever writes the text
            log.exception("a text that was still arriving broke off")
            return {"error": EngineFault().to_dict()}
