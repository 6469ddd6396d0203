"""Makes the lines of batch jobs, a few at a time, in the gaps that listeners leave. Knows claims, tries and rests; blind to who asked.

A line that failed once is tried again with nothing beside it: should it take the engine down, no innocent line falls with it.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ..errors import BadInput, Cancelled, EngineFault, KaikouError, NotAllowed, NotFound, NotReady, StorageFull, TooLarge
from ..store import JobStore, Line, SoundStore
from .batch_line import Flight, LineMaker
from .hall import Hall
from .pace import Pace

log = logging.getLogger(__name__)
MAX_TRIES = 3
REST_S = (1.0, 4.0, 15.0, 60.0)  # before the next try
MAX_WIDTH = 32
LOOK_AGAIN_S = 5.0  # whether the process that holds the jobs of this folder has gone
FOR_GOOD = (BadInput, NotFound, NotAllowed, TooLarge)  # another try would end the same


class BatchWork:
    """`clock`: monotonic seconds."""

    def __init__(self, jobs: JobStore, sounds: SoundStore, maker: LineMaker, hall: Hall, clock: Callable[[], float] = time.monotonic):
        self._jobs, self._sounds, self.maker, self._hall, self._clock = jobs, sounds, maker, hall, clock
        self._change = threading.Condition()
        self._news = self._closing = False
        self._open: dict[str, str] = {}  # job -> account: may have lines to claim
        self._served: dict[str, int] = {}  # job -> when it had its last turn
        self._turn = 0
        self._went_on: dict[str, int] = {}  # job -> the turn at which it was let go on
        self._flights: dict[tuple[str, int], Flight] = {}
        self._rests: list[tuple[float, str, int, str]] = []  # a heap: (due, job, n, account)
        self._outages: Counter[tuple[str, int]] = Counter()  # how often in a row a line found no engine
        self._suspect: tuple[Line, str] | None = None  # claimed, waits until nothing else is in the air
        self.fate = threading.Lock()  # a job stops or goes on: one after the other, on disk as in mind
        self._stopped: dict[str, KaikouError] = {}  # jobs that a full disk stopped, whether or not it could be written down
        self._paces: dict[str, Pace] = {}
        self._watchers: dict[str, set[Callable[[], None]]] = {}
        self._pool = ThreadPoolExecutor(MAX_WIDTH, thread_name_prefix="batch")
        self._thread: threading.Thread | None = None
        self.n_failed = self.n_tried_again = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="batch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """What is in the air waits for the next start."""
        with self._change:
            self._closing = True
            flights = list(self._flights.values())
            self._change.notify_all()
        self.maker.close()
        for flight in flights:
            self.maker.ground(flight)
        self._pool.shutdown(wait=True)
        if self._thread is not None:
            self._thread.join()

    # ---- what the desk asks for ---------------------------------------------------------------------------
    def go(self, job_id: str, account: str) -> None:
        """There may be lines to make: a job is new, or goes on."""
        with self._change:
            self._stopped.pop(job_id, None)
            self._paces.pop(job_id, None)
            self._open[job_id] = account
            self._turn += 1
            self._went_on[job_id] = self._turn
        self.poke()

    def poke(self) -> None:
        """An engine took over, or something else has changed."""
        with self._change:
            self._news = True
            self._change.notify_all()

    def halt(self, job_id: str) -> None:
        """What is being made of a job ends within one step."""
        with self._change:
            flights = [f for f in self._flights.values() if f.line.job == job_id]
        for flight in flights:
            self.maker.ground(flight)
        self._tell(job_id)

    @property
    def n_open(self) -> int:
        """Jobs with lines to claim, in the air or resting."""
        with self._change:
            return len({*self._open, *(job for job, _ in self._flights), *(job for _, job, _, _ in self._rests)})

    def in_the_air(self, job_id: str) -> list[int]:
        with self._change:
            held = [self._suspect[0]] if self._suspect is not None else []
            return [line.n for line in [*(f.line for f in self._flights.values()), *held] if line.job == job_id]

    def stopped(self, job_id: str) -> KaikouError | None:
        return self._stopped.get(job_id)

    def eta_s(self, job_id: str, chars: int) -> float | None:
        with self._change:
            pace = self._paces.get(job_id)
            return pace.eta_s(chars) if pace else None

    def watch(self, job_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """`wake` is called from other threads whenever a line has ended. Returns what ends that."""
        with self._change:
            self._watchers.setdefault(job_id, set()).add(wake)

        def unwatch() -> None:
            with self._change:
                mine = self._watchers.get(job_id, set())
                mine.discard(wake)
                if not mine:
                    self._watchers.pop(job_id, None)

        return unwatch

    def _tell(self, job_id: str) -> None:
        with self._change:
            wakes = list(self._watchers.get(job_id, ()))
        for wake in wakes:
            wake()

    # ---- whose turn it is -----------------------------------------------------------------------------------
    def _run(self) -> None:
        if not self._take_charge():
            return
        while not self._closing:
            try:
                wait_s = 0.0 if self._advance() else None
            except Exception:  # the loop must outlive whatever a disk or a line does
                log.exception("the batch loop stumbled")
                wait_s = LOOK_AGAIN_S
            if wait_s == 0.0:
                continue
            with self._change:
                if not self._news and not self._closing:
                    if self._rests and not self._flights:
                        wait_s = max(0.2, self._rests[0][0] - self._clock())
                    self._change.wait(wait_s)
                self._news = False

    def _take_charge(self) -> bool:
        """False when the studio closes before it is this process' turn. A folder that cannot be used is looked at again."""
        while not self._closing:
            try:
                if self._jobs.hold():
                    self._sounds.sweep()
                    n = self._jobs.reclaim()
                    with self._change:
                        self._open = {**dict(self._jobs.open_jobs()), **self._open}
                    if n:
                        log.info("%d lines of batches go on where an earlier run left them", n)
                    return True
            except KaikouError as error:
                log.error("batches cannot be worked on: %s", error)
            with self._change:
                self._change.wait_for(lambda: self._closing, LOOK_AGAIN_S)
        return False

    def _advance(self) -> bool:
        """One thing that can be done now. False when there is none."""
        with self._change:
            n_flights = len(self._flights)
            is_alone = any(f.line.attempts for f in self._flights.values())
        width = min(self._hall.n_lanes + 2, MAX_WIDTH) if self._hall.n_lanes else 0  # two more than lanes: one is saved, one waits to be spoken
        if self._closing or is_alone or not width:
            return False
        if self._suspect is not None:
            return not n_flights and self._fly(*self._suspect)
        if n_flights >= width:
            return False
        if self._rests and self._rests[0][0] <= self._clock():
            return self._wake_one()
        return self._claim_next()

    def _claim_next(self) -> bool:
        with self._change:
            job_id = self._whose_turn()
            if job_id is None:
                return False
            account, turn = self._open.pop(job_id), self._turn  # before it is asked: whoever puts it back meanwhile has news of it
        try:
            line = self._jobs.claim(job_id)
            is_over = line is None and self._jobs.settle(job_id)
        except KaikouError as error:
            self._stop(job_id, error, turn)
            return True
        with self._change:
            if line is not None:
                self._open[job_id] = account
            elif is_over:
                self._paces.pop(job_id, None)
                self._served.pop(job_id, None)
                self._went_on.pop(job_id, None)
        if line is not None:
            self._hand_out(line, account)
        elif is_over:
            self._tell(job_id)
        return True

    def _hand_out(self, line: Line, account: str) -> None:
        if line.attempts:
            with self._change:
                self._suspect = (line, account)
            return
        self._fly(line, account)

    def _whose_turn(self) -> str | None:
        """Accounts share alike, and so do the jobs of one."""
        by_account = Counter(f.account for f in self._flights.values())
        by_job = Counter(f.line.job for f in self._flights.values())
        return min(self._open, key=lambda job: (by_account[self._open[job]], by_job[job], self._served.get(job, 0)), default=None)

    def _wake_one(self) -> bool:
        with self._change:
            (_, job_id, n, account), turn = heapq.heappop(self._rests), self._turn
        try:
            line = self._jobs.claim_again(job_id, n)
        except KaikouError as error:
            self._stop(job_id, error, turn)
            return True
        if line is not None:
            self._hand_out(line, account)
        return True

    def _fly(self, line: Line, account: str) -> bool:
        flight = Flight(line, account)
        with self._change:
            if self._closing:
                return False
            self._suspect = None
            self._flights[flight.where] = flight
            self._turn += 1
            self._served[line.job] = flight.turn = self._turn
            self._paces.setdefault(line.job, Pace(self._clock))
        self._pool.submit(self._make, flight)
        return True

    # ---- one line -------------------------------------------------------------------------------------------
    def _make(self, flight: Flight) -> None:
        line = flight.line
        try:
            try:
                if self.maker.make(flight):
                    self._keep_pace(line)
                self._outages.pop(flight.where, None)
            except Exception as error:
                self._failed(flight, error)
        except Exception as error:  # not even that could be written down
            log.error("line %d of %s: %s", line.n, line.job, error)
            self._stop(line.job, error if isinstance(error, KaikouError) else StorageFull(), flight.turn)
        with self._change:
            del self._flights[flight.where]
            if line.job not in self._stopped:
                self._open.setdefault(line.job, flight.account)  # look again: this may have been its last
            self._news = True
            self._change.notify_all()
        self._tell(line.job)

    def _keep_pace(self, line: Line) -> None:
        with self._change:
            if line.job in self._paces:
                self._paces[line.job].add(len(line.text))

    def _failed(self, flight: Flight, error: Exception) -> None:
        line = flight.line
        if isinstance(error, Cancelled) or self._closing:
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
        with self._change:
            heapq.heappush(self._rests, (self._clock() + REST_S[min(times, len(REST_S)) - 1], *flight.where, flight.account))

    def _stop(self, job_id: str, error: KaikouError, turn: int) -> None:
        """The job pauses, and says why; nothing of it is lost. turn: when what met the error was begun; a job that somebody let go on since does so."""
        with self.fate:
            with self._change:
                if self._went_on.get(job_id, 0) > turn:
                    return
                self._stopped[job_id] = error
                self._open.pop(job_id, None)
            log.warning("job %s pauses: %s", job_id, error)
            with suppress(KaikouError):  # the disk may be too full even for that
                self._jobs.pause(job_id, error)
        self._tell(job_id)
