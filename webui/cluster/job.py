"""A stream of a studio as the scheduler of a replica sees it. Knows no sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import numpy as np

from ..engine.base import Engine
from ..engine.remote.protocol import record_of, words_of_chunk
from ..errors import KaikouError
from ..studio.speech_job import FIRST_DUE_S
from ..types import Chunk, Prompt, SpeechRequest

LISTENED_S = 1.0  # slack of a stream whose studio tells none: at most what a listener has in hand


class TextPieces:
    """A text that is still being written at the studio: asked for one piece at a time, by the
    engine's thread that reads it.
    """

    def __init__(self, on_want: Callable[[], None]):
        self._on_want, self._pieces = on_want, SimpleQueue()
        self.is_spent, self.can_step = False, True
        self.is_starved, self.fed_s = False, time.monotonic()

    def put(self, piece: str | KaikouError | None) -> None:
        self._pieces.put(piece)

    def close(self) -> None:
        self.is_spent = True
        self._pieces.put(None)

    def __iter__(self) -> Iterator[str]:
        while not self.is_spent:
            self._on_want()
            self.is_starved = True
            piece = self._pieces.get()
            self.is_starved, self.fed_s = False, time.monotonic()
            if isinstance(piece, KaikouError):
                raise piece
            if piece is None:
                return
            yield piece


class RemoteJob:
    """A stream of a studio as the scheduler sees it. `credit` and `produced` count chunks.

    send(words, body): hands a message to the stream's socket, from any thread.
    """

    own_rtf = 0.0

    def __init__(self, opening: dict, body: bytes, rate: int, send: Callable[[dict, object], None]):
        self.request = record_of(SpeechRequest, opening["request"])
        self.id, self.rate, self._send = self.request.id, rate, send
        self.how, self.body = opening["how"], body
        self.source_hz = int(opening.get("rate", 0))
        self.text_source = TextPieces(self._want_text) if self.how == "text" else None
        self.born_s, self.first_chunk_s = time.monotonic(), None
        self.credit, self.produced = int(opening["credit"]), 0
        self.is_cancelled = self.is_over = False
        self._due_s = self.born_s + FIRST_DUE_S

    def _want_text(self) -> None:
        self._send({"op": "text_wanted"}, b"")

    # ---- what the scheduler asks -----------------------------------------------------------------
    @property
    def wants_audio(self) -> bool:
        return self.produced < self.credit

    @property
    def is_background(self) -> bool:
        return self.request.priority > 0

    def due_s(self) -> float:
        return self._due_s

    def accept(self, chunk: Chunk, work_s: float) -> None:
        now = time.monotonic()
        if self.first_chunk_s is None:
            self.first_chunk_s = now - self.born_s
        self.produced += 1
        self._due_s = max(self._due_s, now) + len(chunk.samples) / self.rate
        words, samples = words_of_chunk(chunk)
        self._send({"op": "chunk", "chunk": words, "work_s": work_s}, samples)

    def move(self, state: str, position: int = 0) -> None:
        self.is_over = self.is_over or state in ("saving", "done")

    def fail(self, error: KaikouError) -> None:
        if not self.is_over:
            self.is_over = True
            self._send({"op": "error", "error": error.to_dict()}, b"")

    # ---- what the studio says --------------------------------------------------------------------
    def grant(self, credit: int, slack_ms: float | None) -> None:
        """`slack_ms`: how long its listener still has sound; None: nobody plays it."""
        self.credit = max(self.credit, credit)
        slack_s = LISTENED_S if slack_ms is None else slack_ms / 1000
        self._due_s = time.monotonic() + slack_s

    def leave(self) -> None:
        self.is_cancelled = True
        if self.text_source is not None:
            self.text_source.close()


def open_stream(engine: Engine, job: RemoteJob, prompt: Prompt, lane: int) -> Iterator[Chunk]:
    """What speaks `job`, as the scheduler asks for it."""
    if job.how == "convert":
        samples = np.frombuffer(bytearray(job.body), np.float32)
        return engine.convert(job.request, prompt, samples, job.source_hz, lane)
    if job.text_source is not None:
        return engine.stream_text(job.request, prompt, iter(job.text_source))
    return engine.stream(job.request, prompt, lane)
