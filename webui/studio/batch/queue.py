"""What there is to make of batches, and whose turn is next: open jobs, lines in the air, lines that
rest. Touches no disk and makes nothing.

A line that failed once is tried again with nothing beside it: should it take the engine down, no
innocent line falls with it.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from ...errors import KaikouError
from ...store import Line
from .eta import EtaEstimator
from .synthesise import LineTask


class BatchQueue:
    """Thread-safe; lines are taken by one thread. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]):
        self._clock, self._change = clock, threading.Condition()
        self._news = self.is_closing = False
        self._open: dict[str, str] = {}  # job -> account: may have lines to claim
        self._served: dict[str, int] = {}  # job -> when it had its last turn
        self._turn = 0
        self._went_on: dict[str, int] = {}  # job -> the turn at which it was let go on
        self._running: dict[tuple[str, int], LineTask] = {}
        self._rests: list[tuple[float, str, int, str]] = []  # a heap: (due, job, n, account)
        # claimed, waits until nothing else is in the air
        self.isolated_retry: tuple[Line, str] | None = None
        self._stopped: dict[
            str, KaikouError
        ] = {}  # jobs that a full disk stopped, whether or not it could be written down
        self._paces: dict[str, EtaEstimator] = {}

    # ---- jobs ------------------------------------------------------------------------------------
    def add(self, job_id: str, account: str) -> None:
        """It is new, or goes on."""
        with self._change:
            self._stopped.pop(job_id, None)
            self._paces.pop(job_id, None)
            self._open[job_id] = account
            self._turn += 1
            self._went_on[job_id] = self._turn
            self._tell()

    def find(self, jobs: Mapping[str, str]) -> None:
        """Jobs, with their accounts, that an earlier run left open."""
        with self._change:
            self._open = {**jobs, **self._open}

    def put_back(self, job_id: str, account: str) -> None:
        """It may have more lines to claim."""
        with self._change:
            self._open[job_id] = account

    def over(self, job_id: str) -> None:
        with self._change:
            for table in (self._paces, self._served, self._went_on):
                table.pop(job_id, None)

    def stop(self, job_id: str, error: KaikouError, turn: int) -> bool:
        """turn: when what met the error was begun.

        False: somebody has let the job go on since, and it does so.
        """
        with self._change:
            if self._went_on.get(job_id, 0) > turn:
                return False
            self._stopped[job_id] = error.copy()
            self._open.pop(job_id, None)
            return True

    def stopped(self, job_id: str) -> KaikouError | None:
        return self._stopped.get(job_id)

    @property
    def n_open(self) -> int:
        """Jobs with lines to claim, in the air or resting."""
        with self._change:
            return len(
                {
                    *self._open,
                    *(job for job, _ in self._running),
                    *(job for _, job, _, _ in self._rests),
                }
            )

    def n_speaking(self) -> int:
        """Lines that an engine is making now."""
        with self._change:
            flights = list(self._running.values())
        jobs = [f.ready.job for f in flights if f.ready is not None]
        return sum(job.snapshot().state == "running" for job in jobs)

    def eta_s(self, job_id: str, chars: int) -> float | None:
        with self._change:
            pace = self._paces.get(job_id)
            return pace.eta_s(chars) if pace else None

    # ---- whose turn it is ------------------------------------------------------------------------
    def has_room(self, width: int) -> bool:
        """width: lines in the air at a time. A line that failed before flies alone."""
        with self._change:
            is_alone = any(f.line.attempts for f in self._running.values())
            return (
                not self.is_closing
                and not is_alone
                and len(self._running)
                < (min(width, 1) if self.isolated_retry is not None else width)
            )

    def take_rested(self) -> tuple[str, int, str, int] | None:
        """A line that has rested enough: its job, number and account, and the turn."""
        with self._change:
            if not self._rests or self._rests[0][0] > self._clock():
                return None
            _, job_id, n, account = heapq.heappop(self._rests)
            return job_id, n, account, self._turn

    def take_job(self) -> tuple[str, str, int] | None:
        """A job to claim a line of, its account, and the turn.

        It is off the list until it is put back: whoever does so meanwhile has news of it.
        """
        with self._change:
            by_account = Counter(f.account for f in self._running.values())
            by_job = Counter(f.line.job for f in self._running.values())
            # accounts share alike, and so do the jobs of one
            job_id = min(
                self._open,
                key=lambda job: (
                    by_account[self._open[job]],
                    by_job[job],
                    self._served.get(job, 0),
                ),
                default=None,
            )
            return None if job_id is None else (job_id, self._open.pop(job_id), self._turn)

    def retry_alone(self, line: Line, account: str) -> None:
        """It failed before: it waits until it is alone."""
        with self._change:
            self.isolated_retry = line, account

    # ---- in the air ------------------------------------------------------------------------------
    def start(self, line: Line, account: str) -> LineTask | None:
        """It is being made from here on. None when the studio closes."""
        task = LineTask(line, account)
        with self._change:
            if self.is_closing:
                return None
            self.isolated_retry = None
            self._running[task.key] = task
            self._turn += 1
            self._served[line.job] = task.turn = self._turn
            self._paces.setdefault(line.job, EtaEstimator(self._clock))
        return task

    def finish(self, task: LineTask) -> None:
        """Its job may have more: this may also have been its last."""
        with self._change:
            del self._running[task.key]
            if task.line.job not in self._stopped:
                self._open.setdefault(task.line.job, task.account)
            self._tell()

    def line_done(self, line: Line) -> None:
        with self._change:
            if line.job in self._paces:
                self._paces[line.job].add(len(line.text))

    def retry_later(self, task: LineTask, seconds: float) -> None:
        with self._change:
            heapq.heappush(self._rests, (self._clock() + seconds, *task.key, task.account))

    def running_tasks(self, job_id: str = "") -> list[LineTask]:
        """Of one job, or all."""
        with self._change:
            return [f for f in self._running.values() if not job_id or f.line.job == job_id]

    def n_running(self, job_id: str) -> list[int]:
        with self._change:
            isolated_lines = [self.isolated_retry[0]] if self.isolated_retry is not None else []
            return [
                line.n
                for line in [*(f.line for f in self._running.values()), *isolated_lines]
                if line.job == job_id
            ]

    # ---- news ------------------------------------------------------------------------------------
    def poke(self) -> None:
        """Something has changed: look again."""
        with self._change:
            self._tell()

    def _tell(self) -> None:
        self._news = True
        self._change.notify_all()

    def wait(self, at_most_s: float | None) -> None:
        """For news, or until the next line has rested when nothing is in the air."""
        with self._change:
            if not self._news and not self.is_closing:
                rested_s = (
                    max(0.2, self._rests[0][0] - self._clock())
                    if self._rests and not self._running
                    else at_most_s
                )
                self._change.wait(rested_s)
            self._news = False

    def pause(self, seconds: float) -> None:
        """Nothing but the end of the studio ends it sooner."""
        with self._change:
            self._change.wait_for(lambda: self.is_closing, seconds)

    def close(self) -> None:
        """Nothing is lifted any more."""
        with self._change:
            self.is_closing = True
            self._change.notify_all()
