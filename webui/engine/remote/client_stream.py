"""The iterator of one request whose engine lives elsewhere: each `next()` is one question, so
nothing runs ahead of the reader.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...types import Chunk, Prompt
from .child_process import ChildProcess
from .protocol import chunk_of
from .text_feeder import TextFeeder


class ClientStream:
    """opening: what the first question carries besides, so that beginning costs no journey of its
    own. pieces: text that is still arriving.
    """

    def __init__(
        self,
        life: ChildProcess,
        number: int,
        opening: dict,
        prompt: Prompt,
        body=b"",
        pieces: Iterator[str] | None = None,
    ):
        self._life, self._number, self._opening, self._prompt, self._body = (
            life,
            number,
            opening,
            prompt,
            body,
        )
        self._feeder = TextFeeder(life, number, pieces) if pieces is not None else None
        self._is_open = self._is_over = False

    def __iter__(self) -> ClientStream:
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
        if self._is_over:  # by another thread, which may have been quicker than the question
            self._tell_closed()
        if chunk is None or chunk.last:
            self.close()
        if chunk is None:
            raise StopIteration
        return chunk

    def _step(self) -> tuple[dict, bytes]:
        question = {"op": "next", "stream": self._number}
        if self._is_open:
            return self._life.ask(question)
        self._is_open = True
        if self._feeder is not None:
            self._feeder.start()
        body, self._body = self._body, b""
        return self._life.ask({**question, "open": self._opening}, body, self._prompt)

    def close(self) -> None:
        """Idempotent, never waits: the other process frees the request's state after the step it is
        in.
        """
        was_over, self._is_over = self._is_over, True
        if self._is_open and not was_over:
            self._tell_closed()

    def _tell_closed(self) -> None:
        self._life.post({"op": "close", "stream": self._number})
        if self._feeder is not None:
            self._feeder.stop()

    def __del__(self):
        self.close()
