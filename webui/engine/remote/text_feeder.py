"""Text that is still being written, on its way to the engine's process: one piece each time the
engine asks, in a thread that may wait for the writer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from queue import SimpleQueue

from ...errors import EngineFault, KaikouError
from .child_process import ChildProcess

log = logging.getLogger(__name__)


class TextFeeder:
    """pieces: may block; taken from in the feeder's thread, never further than asked for.

    What it raises becomes the stream's error.
    """

    def __init__(self, life: ChildProcess, number: int, pieces: Iterator[str]):
        self._life, self._number, self._pieces = life, number, pieces
        self._wants: SimpleQueue[bool] = SimpleQueue()

    def start(self) -> None:
        self._life.text_callbacks[self._number] = self._wants.put
        threading.Thread(target=self._run, name="engine-text", daemon=True).start()

    def stop(self) -> None:
        """It ends as soon as the writer lets it."""
        self._life.text_callbacks.pop(self._number, None)
        self._wants.put(False)

    def _run(self) -> None:
        while self._wants.get():
            piece = self._next()
            self._life.post({"op": "piece", "stream": self._number, **piece})
            if piece.get("text") is None:
                return

    def _next(self) -> dict:
        try:
            return {"text": next(self._pieces, None)}
        except KaikouError as error:
            return {"error": error.to_dict()}
        except Exception:  # of whoever writes the text
            log.exception("a text that was still arriving broke off")
            return {"error": EngineFault().to_dict()}
