"""The iterator of one request whose engine lives elsewhere: each `next()` is one question, so nothing runs ahead of the reader."""

from __future__ import annotations

from collections.abc import Iterator

from ...types import Chunk, Prompt
from .life import Life
from .words import chunk_of


class Speech:
    """opening: what the first question carries besides, so that beginning costs no journey of its own. pieces: text that is still arriving,
    taken from in the reader's own thread, only when the engine asks for more."""

    def __init__(self, life: Life, number: int, opening: dict, prompt: Prompt, body=b"", pieces: Iterator[str] | None = None):
        self._life, self._number, self._opening, self._prompt, self._body, self._pieces = life, number, opening, prompt, body, pieces
        self._is_open = self._is_over = False

    def __iter__(self) -> Speech:
        return self

    def __next__(self) -> Chunk:
        if self._is_over:
            raise StopIteration
        try:
            words, body = self._step()
            chunk = chunk_of(words["chunk"], body) if "chunk" in words else None
        except BaseException:
            self.close()
            raise
        if chunk is None or chunk.last:
            self.close()
        if chunk is None:
            raise StopIteration
        return chunk

    def _step(self) -> tuple[dict, bytearray]:
        question = {"op": "next", "stream": self._number}
        if self._is_open:
            call = self._life.call(question)
        else:
            self._is_open = True
            call = self._life.call({**question, "open": self._opening}, self._body, self._prompt)
            self._body = b""
        while True:
            words, body = call.wait()
            if "want" not in words:
                return words, body
            self._life.post({"op": "piece", "stream": self._number, "text": next(self._pieces, None)})

    def close(self) -> None:
        """Idempotent, never waits: the other process frees the request's state after the step it is in."""
        if self._is_open and not self._is_over:
            self._life.post({"op": "close", "stream": self._number})
        self._is_over = True

    def __del__(self):
        self.close()
