"""Makes the lines of batch jobs, a few at a time, in the gaps that listeners leave.

Knows claims, tries and pauses; blind to who asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ..errors import (
    BadInput,
    Cancelled,
    EngineFault,
    KaikouError,
    NotAllowed,
    NotFound,
    NotReady,
    StorageFull,
    TooLarge,
)
from ..store import JobStore, Line, SoundStore
from .batch_line import Flight, LineMaker
from .batch_roster import Roster
from .hall import Hall
from .watchers import Watchers

log = logging.getLogger(__name__)
MAX_TRIES = 3
REST_S = (1.0, 4.0, 15.0, 60.0)  # before the next try
MAX_WIDTH = 32
LOOK_AGAIN_S = 5.0  # whether the process that holds the jobs of this folder has gone
FOR_GOOD = (BadInput, NotFound, NotAllowed, TooLarge)  # another try would end the same


class BatchWork:
    """`clock`: monotonic seconds."""

    def __init__(
        self,
        jobs: JobStore,
        sounds: SoundStore,
        maker: LineMaker,
        hall: Hall,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._jobs, self._sounds, self.maker, self._hall = jobs, sounds, maker, hall
        self.roster, self.watchers = Roster(clock), Watchers()
        self.fate = (
            threading.Lock()
        )  # a job stops or goes on: one after the other, on disk as in mind
        self._outages: Counter[tuple[str, int]] = (
            Counter()
        )  # how often in a row a line found no engine
        self._pool = ThreadPoolExecutor(MAX_WIDTH, thread_name_prefix="batch")
        self._thread: threading.Thread | None = None
        self.n_failed = self.n_tried_again = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="batch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What is in the air waits for the next start."""
        self.roster.close()
        self.maker.close()
        for flight in self.roster.flights():
            self.maker.ground(flight)
        self._pool.shutdown(wait=True)
        if self._thread is not None:
            self._thread.join()

    def halt(self, job_id: str) -> None:
        """What is being made of a job ends within one step."""
        for flight in self.roster.flights(job_id):
            self.maker.ground(flight)
        self.watchers.tell(job_id)

    # ---- one line after the other ----------------------------------------------------------------
    def _run(self) -> None:
        if not self._take_charge():
            return
        while not self.roster.is_closing:
            try:
                if self._advance():
                    continue
                wait_s = None
            except Exception:  # the loop must outlive whatever a disk or a line does
                log.exception("the batch loop stumbled")
                wait_s = LOOK_AGAIN_S
            self.roster.wait(wait_s)

    def _take_charge(self) -> bool:
        """False when the studio closes before it is this process' turn.

        A folder that cannot be used is looked at again.
        """
        while not self.roster.is_closing:
            try:
                if self._jobs.hold():
                    self._sounds.sweep()
                    n = self._jobs.reclaim()
                    self.roster.find(dict(self._jobs.open_jobs()))
                    if n:
                        log.info("%d lines of batches go on where an earlier run left them", n)
                    return True
            except KaikouError as error:
                log.error("batches cannot be worked on: %s", error)
            self.roster.pause(LOOK_AGAIN_S)
        return False

    def _advance(self) -> bool:
        """One thing that can be done now. False when there is none."""
        width = (
            min(self._hall.n_lanes + 2, MAX_WIDTH) if self._hall.n_lanes else 0
        )  # two more than lanes: one is saved, one waits to be spoken
        if not self.roster.has_room(width):
            return False
        if self.roster.suspect is not None:
            return self._fly(*self.roster.suspect)
        if (rested := self.roster.take_rested()) is not None:
            self._wake(*rested)
            return True
        if (found := self.roster.take_job()) is not None:
            self._claim(*found)
            return True
        return False

    def _wake(self, job_id: str, n: int, account: str, turn: int) -> None:
        try:
            line = self._jobs.claim_again(job_id, n)
        except KaikouError as error:
            self._stop(job_id, error, turn)
            return
        if line is not None:
            self._hand_out(line, account)

    def _claim(self, job_id: str, account: str, turn: int) -> None:
        try:
            line = self._jobs.claim(job_id)
            is_over = line is None and self._jobs.settle(job_id)
        except KaikouError as error:
            self._stop(job_id, error, turn)
            return
        if line is not None:
            self.roster.put_back(job_id, account)
            self._hand_out(line, account)
        elif is_over:
            self.roster.over(job_id)
            self.watchers.tell(job_id)

    def _hand_out(self, line: Line, account: str) -> None:
        if line.attempts:
            self.roster.suspects(line, account)
        else:
            self._fly(line, account)

    def _fly(self, line: Line, account: str) -> bool:
        flight = self.roster.lift(line, account)
        if flight is None:
            return False
        self._pool.submit(self._make, flight)
        return True

    # ---- one line --------------------------------------------------------------------------------
    def _make(self, flight: Flight) -> None:
        line = flight.line
        try:
            try:
                if self.maker.make(flight):
                    self.roster.made(line)
                self._outages.pop(flight.where, None)
            except Exception as error:
                self._failed(flight, error)
        except Exception as error:  # not even that could be written down
            log.error("line %d of %s: %s", line.n, line.job, error)
            self._stop(
                line.job, error if isinstance(error, KaikouError) else StorageFull(), flight.turn
            )
        self.roster.land(flight)
        self.watchers.tell(line.job)

    def _failed(self, flight: Flight, error: Exception) -> None:
        line = flight.line
        if isinstance(error, Cancelled) or self.roster.is_closing:
            return self._jobs.release(line)
        if isinstance(error, NotReady):
            self._outages[flight.where] += 1
            self._jobs.release(line, is_resting=True)
            return self._rest(flight, self._outages[flight.where])
        if isinstance(error, StorageFull) or getattr(error, "code", "") == "model_not_found":
            self._jobs.release(line)
            return self._stop(line.job, error, flight.turn)
        if not isinstance(error, KaikouError):
            log.error("line %d of %s", line.n, line.job, exc_info=error)
            error = EngineFault()
        is_last = isinstance(error, FOR_GOOD) or line.attempts + 1 >= MAX_TRIES
        self._jobs.tried(line, error, is_last)
        if is_last:
            self.n_failed += 1
        else:
            self.n_tried_again += 1
            self._rest(flight, line.attempts + 1)

    def _rest(self, flight: Flight, times: int) -> None:
        self.roster.rest(flight, REST_S[min(times, len(REST_S)) - 1])

    def _stop(self, job_id: str, error: KaikouError, turn: int) -> None:
        """The job pauses, and says why; nothing of it is lost."""
        with self.fate:
            if not self.roster.stop(job_id, error, turn):
                return
            log.warning("job %s pauses: %s", job_id, error)
            with suppress(KaikouError):  # the disk may be too full even for that
                self._jobs.pause(job_id, error)
        self.watchers.tell(job_id)
