"""The one way from a job to whoever takes its sound: an async iterator of what is new of it, no
faster than its listener takes it. The bridge between lane threads and the event loop; blind to
sockets and wire formats.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from anyio import to_thread

from ..errors import BadInput, KaikouError
from .speech_job import UNLIMITED, Snapshot, SpeechJob
from .studio import Studio


class QueuePosition(NamedTuple):
    position: int  # place in the line, 1 = next
    eta_s: int


class JobStart(NamedTuple):
    """The job is past the line."""


class SentenceStart(NamedTuple):
    index: int
    start: int  # its first sample
    rtf: float


class SampleRange(NamedTuple):
    """Samples start..stop are sent next; who asks for another event has sent them."""

    start: int
    stop: int
    is_last: bool


@dataclass
class Pacing:
    """How far a listener may be served by now, and in which pieces.

    credit: samples that it takes so far; None: it gives no credit and is served lead_s ahead of the
      wall clock, in pieces of min_piece_s or longer: not at the clock's every step.
    piece_s: the longest first piece, second piece, ...; the last holds for all that follow.
    patience_s: a listener may go that long without giving credit for what is still to be sent.
    ahead_s: of a listener without credit: how far the engine may be ahead of what was sent.
    error: why it is served no more.
    """

    credit: int | None = None
    lead_s: float = 0.0
    min_piece_s: float = 0.0
    piece_s: tuple[float, ...] = (math.inf,)
    patience_s: float = math.inf
    ahead_s: float = math.inf
    error: KaikouError | None = None
    n_sent: int = 0  # samples; those that are just being sent count, though that may be cancelled
    n_pieces: int = 0
    began_s: float | None = None  # when the first piece was sent
    moved_s: float = field(default_factory=time.monotonic)  # when a piece or credit came last

    @property
    def is_held_back(self) -> bool:
        """All that the listener gave credit for was sent."""
        return self.credit is not None and self.n_sent >= self.credit

    def raise_credit(self, upto: int) -> None:
        if self.credit is not None and upto > self.credit:
            self.credit, self.moved_s = upto, time.monotonic()

    def check(self) -> None:
        """Raises why the listener is served no more."""
        if self.error is not None:
            raise self.error
        if self.is_held_back and self._patience_left_s() <= 0:
            raise BadInput("idle.listener_left")

    def limit(self, job: SpeechJob) -> int:
        """How many of the job's samples may be sent by now."""
        if self.credit is not None:
            return self.credit
        played_s = time.monotonic() - self.began_s if self.began_s is not None else 0.0
        by_clock = job.n_begun + int((played_s + self.lead_s) * job.rate)
        return int(min(by_clock, job.n_begun + self.n_sent + self.ahead_s * job.rate))

    def piece(self, n_samples: int, limit: int, rate: int) -> int:
        """Samples of the next piece, of n_samples that there are; 0: nothing may be sent now."""
        longest_s = self.piece_s[min(self.n_pieces, len(self.piece_s) - 1)]
        n = int(min(n_samples - self.n_sent, limit - self.n_sent, longest_s * rate))
        is_by_clock = self.credit is None and self.n_sent + n == limit < n_samples
        return 0 if is_by_clock and n < self.min_piece_s * rate else max(0, n)

    def wait_s(self, n_samples: int, limit: int) -> float | None:
        """When to look again though neither the job nor the listener has changed anything."""
        if self.is_held_back:
            return self._patience_left_s()
        is_clock_awaited = self.credit is None and not limit > self.n_sent >= n_samples
        return self.min_piece_s if is_clock_awaited else None

    def _patience_left_s(self) -> float:
        return self.moved_s + self.patience_s - time.monotonic()


class JobReader:
    """`async with JobReader(...) as reader: async for event in reader`. Leaving the block, for
    whatever reason, cancels a job that is not over.

    until_saved: the end is that of the take's saving, else that of the sound.
    """

    def __init__(self, studio: Studio, job: SpeechJob, pacing: Pacing, until_saved: bool = True):
        self._runner, self.job, self._pacing = studio.job_runner, job, pacing
        self._ends = ("done",) if until_saved else ("saving", "done")
        self._event = asyncio.Event()

    async def __aenter__(self) -> JobReader:
        loop = asyncio.get_running_loop()
        self.job.listen(lambda: loop.call_soon_threadsafe(self._event.set))
        return self

    async def __aexit__(self, *_) -> None:
        self.job.listen(None)
        self._runner.cancel(self.job)
        self._runner.reader_done(self.job)

    def poke(self) -> None:
        """The listener gave credit, or is served no more."""
        self._runner.credit(self.job, self._pacing.limit(self.job))
        self._event.set()

    async def __aiter__(
        self,
    ) -> AsyncIterator[QueuePosition | JobStart | SentenceStart | SampleRange | Snapshot]:
        """What is new of the job, as soon as it is; the Snapshot of its end comes last.

        Raises the job's error once all that may be sent was sent, and as Pacing.check does.
        """
        job, pacing, position, n_marks, is_begun = self.job, self._pacing, 0, 0, False
        while True:
            pacing.check()
            limit = pacing.limit(job)
            self._runner.credit(job, limit)
            now = job.snapshot()
            if now.state == "waiting":
                if now.position not in (0, position):
                    position = now.position
                    yield QueuePosition(position, round(self._runner.admission.eta_s(position)))
                await self._change(pacing.wait_s(now.n_samples, limit))
                continue
            if not is_begun:
                is_begun = True
                yield JobStart()
            for mark in now.marks[n_marks:]:
                yield SentenceStart(*mark, now.rtf)
            n_marks = len(now.marks)
            is_all_sent = pacing.n_sent >= now.n_samples
            if n := pacing.piece(now.n_samples, limit, job.rate):
                start, pacing.n_sent = pacing.n_sent, pacing.n_sent + n
                pacing.n_pieces, pacing.moved_s = pacing.n_pieces + 1, time.monotonic()
                pacing.began_s = pacing.began_s or pacing.moved_s
                is_last = now.state in ("saving", "done") and pacing.n_sent == now.n_samples
                yield SampleRange(start, pacing.n_sent, is_last)
                pacing.moved_s = time.monotonic()
            elif now.error is not None and (is_all_sent or pacing.is_held_back):
                raise now.error
            elif now.state in self._ends and is_all_sent:
                yield now
                return
            else:
                await self._change(pacing.wait_s(now.n_samples, limit))

    async def _change(self, timeout_s: float | None) -> None:
        """Returns after the next change, or after timeout_s."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        self._event.clear()


async def open_job(studio: Studio, make: Callable[[], SpeechJob]) -> SpeechJob:
    """Run the blocking `make` off the loop.

    If the caller is cancelled meanwhile, the job that still comes is cancelled too.
    """
    task = asyncio.ensure_future(to_thread.run_sync(make))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(
            lambda t: t.cancelled() or t.exception() or studio.job_runner.cancel(t.result())
        )
        raise


async def collect(studio: Studio, job: SpeechJob, until_saved: bool = False) -> bytes:
    """Reads a job to its end and returns all its samples, s16le.

    until_saved: its take is on the disk too. Raises the job's error; cancels the job when the
    caller is cancelled.
    """
    async with JobReader(studio, job, Pacing(UNLIMITED), until_saved=until_saved) as reader:
        async for event in reader:
            if isinstance(event, Snapshot) and until_saved and event.save_error is not None:
                raise event.save_error
    return job.pcm(0, job.produced)
