"""A text that is still being written while it is spoken: what has come of it, and the stream of its
sound. Blind to sockets.

One thread writes (`push`, `flush`, `end`), one or two take; `close` may come from any. Nothing here
waits for a writer but `run`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..engine.base import Engine
from ..errors import BadInput, EngineFault
from ..text import Clause, ClauseStream, Packer, close, detect, glue, marked_language
from ..types import MAX_TEXT, Chunk, Prompt, Segmentation, SpeechRequest, part_seed

WIDE = "\u2e80"  # scripts from here on are written without blanks between words
Normalise = Callable[[str, str], list[str]]  # (clause, language) -> what is said of it


def in_background(rule: Segmentation) -> Segmentation:
    """The same for a text that an engine cannot read while it arrives: segments no longer than they
    must be, since nothing sounds before one is whole.
    """
    least = rule.merge_units
    return rule._replace(max_units=least, min_units=least, merge_units=least // 2)


class TextSource:
    """All that came of one request's text, in pieces that are ready to be spoken.

    At most MAX_TEXT characters.

    rule: the engine's, None where every clause is a segment. is_read: the engine reads while it
      speaks, so that pieces are clauses and one of
    its calls speaks a run of them; else pieces are segments.
    """

    def __init__(
        self,
        normalise: Normalise,
        language: str,
        notes: list[tuple[str, str]],
        rule: Segmentation | None = None,
        is_read: bool = False,
    ):
        self._normalise, self.language, self.notes = normalise, language, notes
        self._is_read = is_read
        self._packer = (
            Packer(rule if is_read else in_background(rule)) if rule is not None else None
        )
        self._said_clauses: list[str] = []  # as `_packer` knows them
        self._clauses, self._change = ClauseStream(), threading.Condition()
        self._half = ""  # the first half of a character that a message cut in two
        self._before = ""  # the clauses so far
        self._on_news: Callable[[bool], None] | None = None
        self._n_taken = 0
        self.text = self.first = ""  # as it was typed: all so far, and its first clause
        self.pieces: list[str] = []
        self.is_over = self.is_closed = False  # its end has come; nobody speaks it any more
        self.is_running = False  # a call of the engine is under way
        self.is_starved = False  # somebody waits in `run`
        self.fed_s = 0.0  # when that was last over, on the monotonic clock
        self.late_notes: Callable[[SpeechRequest], list[tuple[str, str]]] = lambda request: []

    # ---- the writer's side -----------------------------------------------------------------------
    def push(self, delta: str) -> None:
        """All of `delta` or, with BadInput, nothing of it: too_long_text, bad_text."""
        whole = _join(self._half + delta)
        cut = len(whole) - (whole[-1:] >= "\ud800" and whole[-1:] <= "\udbff")
        if any("\ud800" <= c <= "\udfff" for c in whole[:cut]):
            raise BadInput("bad_text.in_text", param="delta")
        if len(self.text) + len(whole) > MAX_TEXT:
            raise BadInput("too_long_text.stream", max_text=MAX_TEXT, param="delta")
        self._half = whole[cut:]
        self.text += whole[:cut]
        self._add(self._clauses.push(whole[:cut]))

    def flush(self) -> None:
        """What there is is spoken to its end, whether or not its clause is complete."""
        self._add(self._clauses.flush(), ends_run=True)

    def end(self) -> None:
        """There is no more to come. Idempotent."""
        self._half = ""
        if not self.is_over:
            self._add(self._clauses.flush(), is_over=True)

    def _add(self, clauses: list[Clause], ends_run: bool = False, is_over: bool = False) -> None:
        ready = [
            (piece, clause.ends_sentence and piece is pieces[-1])
            for clause in clauses
            for pieces in [self._normalise_clause(clause)]
            for piece in pieces
        ]
        if ready and self._packer is not None and (ends_run or is_over):
            ready[-1] = (close(ready[-1][0]), True)
        with self._change:
            was_waited_for = self.is_starved or not (
                self.is_running or self._n_taken < len(self.pieces)
            )
            if self._packer is None:
                self.pieces += [piece for piece, _ in ready]
            else:
                self._pack(self._packer, ready, ends_run or is_over)
            self.is_over = self.is_over or is_over
            self._change.notify_all()
            tell = self._on_news
        if tell is not None and (ready or is_over or ends_run):
            tell(was_waited_for)

    def _pack(self, packer: Packer, ready: list[tuple[str, bool]], is_end: bool) -> None:
        n_ends, start = len(packer.ends), packer.ends[-1] if packer.ends else 0
        for piece, ends_sentence in ready:
            packer.add(piece, ends_sentence)
            self._said_clauses.append(piece)
        if is_end:
            packer.end()
        if self._is_read:
            self.pieces += [piece for piece, _ in ready]
            return
        for end in packer.ends[n_ends:]:
            self.pieces.append(close(glue(self._said_clauses[start:end]), "，,"))
            start = end

    @property
    def _n_ready(self) -> int:
        """Pieces that may be taken: whose run is certain."""
        is_waiting = self._is_read and self._packer is not None
        return self._packer.n_certain if is_waiting else len(self.pieces)

    def _normalise_clause(self, clause: Clause) -> list[str]:
        """A clause of digits alone goes with the text before it."""
        if not self._before:
            self.language = marked_language(self.text) or self.language
        is_told = self.language not in ("", "auto") or any(c.isalpha() for c in clause.text)
        language = self.language if is_told or not self._before else detect(self._before)
        self._before += clause.text
        pieces = self._normalise(clause.text, language)
        if pieces and not self.first:
            self.first = clause.text
        return pieces

    # ---- the speaker's side ----------------------------------------------------------------------
    def listen(self, tell: Callable[[bool], None]) -> None:
        """`tell` is called by the writer when there is more to speak; True: it had been waited
        for.
        """
        self._on_news = tell

    @property
    def can_step(self) -> bool:
        """The stream has something to do, be it to end."""
        return self.is_running or self.is_over or self._n_taken < len(self.pieces)

    @property
    def is_spent(self) -> bool:
        """All of it has been spoken."""
        return self.is_over and not self.is_running and self._n_taken == len(self.pieces)

    @property
    def next(self) -> int:
        """Index of the piece that is spoken next; as many as there are when none is left."""
        return self._n_taken

    def take(self) -> str:
        self._n_taken += 1
        return self.pieces[self._n_taken - 1]

    def run(self) -> Iterator[str]:
        """The pieces of one run, for an engine that reads while it speaks.

        Waits for the writer; ends with the run, the text or `close`.
        """
        before = ""
        while (piece := self._wait(bool(before))) is not None:
            yield " " + piece if before and before[-1] < WIDE and piece[0] < WIDE else piece
            before = piece

    def _wait(self, is_begun: bool) -> str | None:
        def is_at_end() -> bool:
            return self.is_closed or (is_begun and self._n_taken in self._run_ends)

        with self._change:
            self.is_starved = self._n_taken == self._n_ready
            self._change.wait_for(
                lambda: is_at_end() or self.is_over or self._n_taken < self._n_ready
            )
            self.is_starved, self.fed_s = False, time.monotonic()
            return None if is_at_end() or self._n_taken == self._n_ready else self.take()

    @property
    def _run_ends(self) -> list[int]:
        """How many pieces there are up to the end of each run that is known to be over."""
        return self._packer.ends if self._packer is not None else []

    def close(self) -> None:
        """Nobody speaks it any more. Idempotent."""
        with self._change:
            self.is_closed, self._on_news = True, None
            self._change.notify_all()

    def segment_of(self, piece: int) -> int:
        """Which segment of the `settled` request holds this piece."""
        is_in_runs = self._is_read and self._packer is not None
        return bisect_right(self._run_ends, piece) if is_in_runs else piece

    def settled(self, request: SpeechRequest) -> SpeechRequest:
        """The request with the whole of its text."""
        segments = self.pieces
        if self._is_read and self._packer is not None:
            ends = [0, *(end for end in self._run_ends if end < len(segments)), len(segments)]
            segments = [glue(segments[a:b]) for a, b in pairwise(ends)] if segments else []
        return replace(
            request, text=self.text if self.first else request.text, segments=tuple(segments)
        )


class TextSourceStream:
    """The chunks of one request, one run of its text after the other.

    `next()` only while `text_source.can_step`; the last chunk is empty, since nobody knows that a
    chunk is the last one before the writer has said so.
    """

    def __init__(
        self,
        engine: Engine,
        request: SpeechRequest,
        prompt: Prompt,
        text_source: TextSource,
        lane: int | None,
    ):
        """lane: None = the engine reads the text itself (`stream_text`)."""
        self._engine, self._request, self._prompt, self._text_source, self._lane = (
            engine,
            request,
            prompt,
            text_source,
            lane,
        )
        self._stream: Iterator[Chunk] | None = None
        self._number = self._start = self._segment = 0

    def __iter__(self) -> TextSourceStream:
        return self

    def __next__(self) -> Chunk:
        if self._stream is None and not self._begin():
            return Chunk(self._number, np.zeros(0, np.float32), self._start, self._segment, True)
        chunk = next(self._stream, None)
        if chunk is None:
            raise EngineFault()  # a stream that ends without a last chunk
        if chunk.last:
            self.close()
        result = replace(
            chunk, number=self._number, start=self._start, segment=self._segment, last=False
        )
        self._number, self._start = self._number + 1, self._start + len(chunk.samples)
        return result

    def _begin(self) -> bool:
        """False when the text is over.

        Each run has random numbers of its own, so that it does not depend on the length of those
        before.
        """
        text_source, index = self._text_source, self._text_source.next
        if index == len(text_source.pieces):
            return False
        self._segment, text_source.is_running = index, True
        seed = self._request.seed  # with which one run says what a whole text says
        request = replace(self._request, seed=part_seed(seed, index) if index else seed)
        if self._lane is None:
            self._stream = self._engine.stream_text(request, self._prompt, text_source.run())
        else:
            text_source.take()
            self._stream = self._engine.stream(
                replace(
                    request, text=text_source.pieces[index], segments=(text_source.pieces[index],)
                ),
                self._prompt,
                self._lane,
            )
        return True

    def close(self) -> None:
        stream, self._stream = self._stream, None
        self._text_source.is_running = False
        if stream is not None:
            stream.close()


def _join(text: str) -> str:
    """With the halves of characters put together that came one after the other."""
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if any("\ud800" <= c <= "\udfff" for c in text)
        else text
    )
