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

from ...errors import (
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
from ...store import BlobStore, JobStore, Line
from ..scheduler_pool import SchedulerPool
from .events import LineEvents
from .queue import BatchQueue
from .synthesise import LineSynthesiser, LineTask

log = logging.getLogger(__name__)
MAX_TRIES = 3
REST_S = (1.0, 4.0, 15.0, 60.0)  # before the next try
MAX_WIDTH = 32
LOOK_AGAIN_S = 5.0  # whether the process that holds the jobs of this folder has gone
FOR_GOOD = (BadInput, NotFound, NotAllowed, TooLarge)  # another try would end the same


class BatchWorker:
    """`clock`: monotonic seconds."""

    def __init__(
        self,
        jobs: JobStore,
        sounds: BlobStore,
        maker: LineSynthesiser,
        scheduler_pool: SchedulerPool,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._jobs, self._sounds, self.synthesiser, self._scheduler_pool = (
            jobs,
            sounds,
            maker,
            scheduler_pool,
        )
        self.queue, self.watchers = BatchQueue(clock), LineEvents()
        self.state_lock = (
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
        self.queue.close()
        self.synthesiser.close()
        for task in self.queue.running_tasks():
            self.synthesiser.cancel(task)
        self._pool.shutdown(wait=True)
        if self._thread is not None:
            self._thread.join()

    def halt(self, job_id: str) -> None:
        """What is being made of a job ends within one step."""
        for task in self.queue.running_tasks(job_id):
            self.synthesiser.cancel(task)
        self.watchers.tell(job_id)

    # ---- one line after the other ----------------------------------------------------------------
    def _run(self) -> None:
        if not self._take_charge():
            return
        while not self.queue.is_closing:
            try:
                if self._advance():
                    continue
                wait_s = None
            except Exception:  # the loop must outlive whatever a disk or a line does
                log.exception("the batch loop stumbled")
                wait_s = LOOK_AGAIN_S
            self.queue.wait(wait_s)

    def _take_charge(self) -> bool:
        """False when the studio closes before it is this process' turn.

        A folder that cannot be used is looked at again.
        """
        while not self.queue.is_closing:
            try:
                if self._jobs.hold():
                    self._sounds.sweep()
                    n = self._jobs.reclaim()
                    self.queue.find(dict(self._jobs.open_jobs()))
                    if n:
                        log.info("%d lines of batches go on where an earlier run left them", n)
                    return True
            except KaikouError as error:
                log.error("batches cannot be worked on: %s", error)
            self.queue.pause(LOOK_AGAIN_S)
        return False

    def _advance(self) -> bool:
        """One thing that can be done now. False when there is none."""
        width = (
            min(self._scheduler_pool.n_lanes + 2, MAX_WIDTH) if self._scheduler_pool.n_lanes else 0
        )  # two more than lanes: one is saved, one waits to be spoken
        if not self.queue.has_room(width):
            return False
        if self.queue.isolated_retry is not None:
            return self._fly(*self.queue.isolated_retry)
        if (rested := self.queue.take_rested()) is not None:
            self._wake(*rested)
            return True
        if (claim := self.queue.take_job()) is not None:
            self._claim(*claim)
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
            self.queue.put_back(job_id, account)
            self._hand_out(line, account)
        elif is_over:
            self.queue.over(job_id)
            self.watchers.tell(job_id)

    def _hand_out(self, line: Line, account: str) -> None:
        if line.attempts:
            self.queue.retry_alone(line, account)
        else:
            self._fly(line, account)

    def _fly(self, line: Line, account: str) -> bool:
        task = self.queue.start(line, account)
        if task is None:
            return False
        self._pool.submit(self._make, task)
        return True

    # ---- one line --------------------------------------------------------------------------------
    def _make(self, task: LineTask) -> None:
        line = task.line
        try:
            try:
                if self.synthesiser.make(task):
                    self.queue.line_done(line)
                self._outages.pop(task.key, None)
            except Exception as error:
                self._on_failure(task, error)
        except Exception as error:  # not even that could be written down
            log.error("line %d of %s: %s", line.n, line.job, error)
            self._stop(
                line.job, error if isinstance(error, KaikouError) else StorageFull(), task.turn
            )
        self.queue.finish(task)
        self.watchers.tell(line.job)

    def _on_failure(self, task: LineTask, error: Exception) -> None:
        line = task.line
        if isinstance(error, Cancelled) or self.queue.is_closing:
            return self._jobs.release(line)
        if isinstance(error, NotReady):
            self._outages[task.key] += 1
            self._jobs.release(line, is_resting=True)
            return self._rest(task, self._outages[task.key])
        if isinstance(error, StorageFull) or getattr(error, "code", "") == "model_not_found":
            self._jobs.release(line)
            return self._stop(line.job, error, task.turn)
        if not isinstance(error, KaikouError):
            log.error("line %d of %s", line.n, line.job, exc_info=error)
            error = EngineFault()
        is_last = isinstance(error, FOR_GOOD) or line.attempts + 1 >= MAX_TRIES
        self._jobs.tried(line, error, is_last)
        if is_last:
            self.n_failed += 1
        else:
            self.n_tried_again += 1
            self._rest(task, line.attempts + 1)

    def _rest(self, task: LineTask, times: int) -> None:
        self.queue.retry_later(task, REST_S[min(times, len(REST_S)) - 1])

    def _stop(self, job_id: str, error: KaikouError, turn: int) -> None:
        """The job pauses, and says why; nothing of it is lost."""
        with self.state_lock:
            if not self.queue.stop(job_id, error, turn):
                return
            log.warning("job %s pauses: %s", job_id, error)
            with suppress(KaikouError):  # the disk may be too full even for that
                self._jobs.pause(job_id, error)
        self.watchers.tell(job_id)
