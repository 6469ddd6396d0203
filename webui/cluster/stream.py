"""The iterator of one request that a replica speaks, and what happens when that replica dies: the
request is given to another one, which makes the same samples from the same seed and version; what
was heard already is made again, compared and left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..engine.remote.protocol import chunk_of, words_of, words_of_prompt
from ..errors import Busy, Cancelled, EngineFault, EngineStalled
from ..types import Chunk, Prompt, SpeechRequest
from .connection import Connection, Lost
from .messages import WINDOW, Damaged
from .piece_log import PieceLog
from .prompts import key_of

log = logging.getLogger(__name__)
MAX_TRIES = 3  # of one request: a text that kills every replica is told after these
# How long another replica is looked for: while nobody hears the wait, and else at least so long.
UNHEARD_S, HEARD_S = 10.0, 1.0
LOOK_AGAIN_S = 0.1


def replay_differs() -> EngineFault:
    return EngineFault("replay_differs")


def fleet_lost() -> EngineFault:
    return EngineFault("engine_lost.fleet")


class Delivered:
    """What the reader has, since the place from which a replay would begin."""

    def __init__(self, segment: int):
        self.segment, self.n_samples, self._hash = segment, 0, hashlib.blake2b()

    def add(self, samples: np.ndarray) -> None:
        self._hash.update(np.ascontiguousarray(samples, np.float32).data)
        self.n_samples += len(samples)

    def digest(self) -> bytes:
        return self._hash.digest()


class StreamCounts:
    """What happened to all streams of a studio so far. Thread-safe."""

    def __init__(self):
        self._lock, self._counts = threading.Lock(), Counter()

    def add(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def to_dict(self) -> dict[str, int]:
        names = ("fleet_reissues", "fleet_replays", "fleet_prompt_misses")
        with self._lock:
            return {name: self._counts[name] for name in names}


class ClusterStream:
    """connect(): a connection to some replica of the right version; raises Lost or KaikouError.

    how: stream, convert or text. body: samples of the source of a conversion. counts: of the
    studio.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        how: str,
        request: SpeechRequest,
        prompt: Prompt,
        body: bytes | memoryview = b"",
        rate: int = 0,
        pieces: Iterator[str] | None = None,
        counts: StreamCounts | None = None,
    ):
        self._counts = counts or StreamCounts()
        self._connect, self._how, self._prompt, self._body = connect, how, prompt, body
        self.request, self._rate = request, rate
        self._pieces = PieceLog(pieces) if pieces is not None else None
        self._connection: Connection | None = None
        self._n_taken = 0  # chunks of the present connection
        self._n_pieces = 0
        self._number = self._start = 0  # of the next chunk
        self._delivered: Delivered | None = None
        self._skip: Delivered | None = None  # what a replay has made again so far
        self._tries = 0
        self._is_over, self._cancel = False, threading.Event()
        self._lost_s: float | None = None  # since when it has no replica any more
        self.slack_s: float | None = None  # how long the listener still has sound
        self.n_replays = 0

    def __iter__(self) -> ClusterStream:
        return self

    def __next__(self) -> Chunk:
        if self._is_over:
            raise StopIteration
        try:
            while True:
                try:
                    chunk = self._deliver(self._receive())
                except (Lost, EngineStalled) as why:
                    self._lose(why)
                    continue
                if chunk is not None:
                    break
        except BaseException:
            self.close()
            raise
        if chunk.last:
            self.close()
        return chunk

    def cancel(self) -> None:
        """Any thread: the step under way, or else the next one, raises Cancelled."""
        self._cancel.set()
        connection = self._connection
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Idempotent, never waits; the replica frees the request's state after its present step."""
        self._is_over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._pieces is not None:
            self._pieces.close()

    def __del__(self):
        self.close()

    def _lose(self, why: Exception) -> None:
        """The replica is gone. Raises Cancelled, or EngineFault when that was once too often."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._cancel.is_set() or self._is_over:
            raise Cancelled from why
        self._lost_s = time.monotonic()
        self._tries += 1
        log.warning("request %s: its replica was lost (%s)", self.request.id, why)
        if self._tries >= MAX_TRIES:
            raise fleet_lost() from why

    def _find(self) -> Connection:
        """To some replica; once one was lost, also where the fleet needs a moment to see it.

        Raises Lost, Busy, NotReady.
        """
        wait_s = UNHEARD_S
        if self._delivered is not None and self.slack_s is not None:
            wait_s = min(UNHEARD_S, max(HEARD_S, self.slack_s))
        end_s = (self._lost_s or time.monotonic()) + wait_s
        while True:
            try:
                return self._connect()
            except (Lost, Busy) as why:
                if isinstance(why, Busy) and self._lost_s is None:
                    raise
                if self._cancel.wait(LOOK_AGAIN_S):
                    raise Lost from why
                if time.monotonic() > end_s:
                    raise fleet_lost() from why

    def _open(self) -> Connection:
        """Raises Lost, Busy, NotReady, EngineFault when no replica was found."""
        connection = self._connection = self._find()
        if self._cancel.is_set():
            connection.close()
            raise Lost
        self._lost_s = None
        request = self.request
        if self._delivered is not None:
            self._counts.add("fleet_replays")
            self.n_replays += 1
            self._skip = Delivered(self._delivered.segment)
            if self._how == "stream":  # what comes before this segment need not be made again
                request = replace(request, first_segment=self._delivered.segment)
        elif self._tries:
            self._counts.add("fleet_reissues")
        self._n_taken = self._n_pieces = 0
        words = {
            "op": "open",
            "how": self._how,
            "request": words_of(request),
            "rate": self._rate,
            "key": key_of(self._prompt),
            "credit": WINDOW,
            "is_replay": self._delivered is not None,
        }
        connection.send(words, self._body)
        return connection

    def _receive(self) -> Chunk:
        """Raises Lost, and the named error of the engine."""
        if self._cancel.is_set():
            raise Lost
        connection = self._connection
        if connection is None:
            connection = self._open()
        elif self._n_taken:
            slack_s = 0.0 if self._skip is not None else self.slack_s
            slack_ms = None if slack_s is None else round(1000 * slack_s)
            credit = self._n_taken + WINDOW
            with contextlib.suppress(Lost):  # it may have sent the last chunk and closed
                connection.send({"op": "next", "credit": credit, "slack_ms": slack_ms})
        while True:
            words, body = connection.receive()
            op = words["op"]
            if op == "chunk":
                self._n_taken += 1
                return chunk_of(words["chunk"], body)
            if op == "prompt_wanted":
                self._counts.add("fleet_prompt_misses")
                words = {"op": "prompt", "prompt": words_of_prompt(self._prompt)}
                connection.send(words, self._prompt.data)
            elif op == "text_wanted" and self._pieces is not None:
                self._pieces.send_piece(connection, self._n_pieces)
                self._n_pieces += 1
            else:
                raise Damaged

    def _deliver(self, chunk: Chunk) -> Chunk | None:
        """The part of `chunk` that the reader does not have yet, numbered as the reader counts;
        None where it has all of it.
        """
        samples = chunk.samples
        if self._skip is not None:
            samples = self._unheard(chunk)
            if not len(samples):
                return None
        is_new_segment = self._delivered is not None and chunk.segment != self._delivered.segment
        if self._delivered is None or (is_new_segment and self._how == "stream"):
            self._delivered = Delivered(chunk.segment)
        self._delivered.add(samples)
        self._tries = 0
        chunk = replace(chunk, number=self._number, start=self._start, samples=samples)
        self._number, self._start = self._number + 1, self._start + len(samples)
        return chunk

    def _unheard(self, chunk: Chunk) -> np.ndarray:
        """Raises EngineFault where a replay is not what was heard."""
        n = min(len(chunk.samples), self._delivered.n_samples - self._skip.n_samples)
        self._skip.add(chunk.samples[:n])
        if self._skip.n_samples == self._delivered.n_samples:
            if self._skip.digest() != self._delivered.digest():
                raise replay_differs()
            self._skip = None
        elif chunk.last:
            raise replay_differs()
        return chunk.samples[n:]
