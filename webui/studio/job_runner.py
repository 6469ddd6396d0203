"""A job from its turn to its take: it waits, begins, is steered by its reader, and ends.

Blind to what is said and to how a request became a job.
"""

from __future__ import annotations

import contextlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..errors import Cancelled, KaikouError, NotFound, StorageFull
from ..settings import Limits
from ..types import Prompt
from .admission import Admission
from .log_line import line
from .metrics import Metrics
from .scheduler import Scheduler
from .scheduler_pool import SchedulerPool
from .share_links import is_guest
from .speech_job import SpeechJob
from .takes import Takes
from .usage import Usage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedJob:
    """A job that holds the lease of its engine, the lanes it will be made on, and its voice's
    prompt.
    """

    job: SpeechJob
    lanes: Scheduler
    prompt: Prompt


class JobRunner:
    def __init__(
        self,
        scheduler_pool: SchedulerPool,
        takes: Takes,
        metrics: Metrics,
        usage: Usage,
        limits: Limits,
    ):
        self._scheduler_pool, self._takes, self._metrics, self._usage = (
            scheduler_pool,
            takes,
            metrics,
            usage,
        )
        self.admission = Admission(
            scheduler_pool.capacity,
            scheduler_pool.n_wanting_audio,
            limits.max_waiting,
            limits.max_streams_per_visitor,
        )
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="takes")

    # ---- turn ------------------------------------------------------------------------------------
    def submit(self, ready: PreparedJob) -> None:
        """It begins now, or waits in the line. Raises Busy, and has let its engine go then."""
        job = ready.job
        if job.text_source is not None:
            job.text_source.listen(lambda was_waited_for: self._on_text(job, was_waited_for))
        try:
            self.admission.enter(job, lambda _: self.begin(ready))
        except BaseException:
            job.lease.release()
            raise

    def begin(self, ready: PreparedJob) -> None:
        """Past the line."""
        job = ready.job
        waited_s = time.monotonic() - job.born_s
        job.trace.add("queue", waited_s)
        if not job.is_background:
            self._metrics.observe_wait(waited_s)
        job.move("running")
        ready.lanes.add(job, ready.prompt, self._end)

    # ---- what its reader sends back --------------------------------------------------------------
    def credit(self, job: SpeechJob, upto: int) -> None:
        if job.grant(upto):
            self._poke()

    def cancel(self, job: SpeechJob) -> None:
        """Idempotent. The engine stops within one step; a waiting job leaves the line at once."""
        if job.is_cancelled or job.is_over:
            return
        job.is_cancelled = True
        if job.text_source is not None:
            job.text_source.close()
        self._scheduler_pool.cancel(job.request.id)
        if self.admission.leave(job):
            job.settle()
            job.fail(Cancelled())
            job.lease.release()
            self.admission.finish(job)
            self._metrics.count_end(job)
            self._close(job, by_engine=True)
        self._poke()

    def reader_done(self, job: SpeechJob) -> None:
        """A reader has taken what it will take."""
        self._close(job, by_engine=False)

    def _on_text(self, job: SpeechJob, was_waited_for: bool) -> None:
        if was_waited_for:
            job.text_arrived()
        self._poke()

    def _poke(self) -> None:
        self._scheduler_pool.poke()
        self.admission.next()

    # ---- end -------------------------------------------------------------------------------------
    def _end(self, job: SpeechJob) -> None:
        """Called by a lane when a job has made its last step, whatever the reason."""
        job.settle()
        job.lease.release()
        if job.is_background:
            self.admission.next()  # it may have had a place that somebody waits for
        else:
            self.admission.finish(job)
        self._metrics.count_end(job)
        if job.snapshot().state == "saving" and is_guest(job.owner):
            job.saved(None, is_kept=False)
        elif not job.is_background and not is_guest(job.owner):
            self._keep(job)
        self._close(job, by_engine=True)

    def _keep(self, job: SpeechJob) -> None:
        """Its take is written; of a stopped or failed one what there is of it, if that is more than
        it began with.
        """
        with contextlib.suppress(RuntimeError):  # the studio is closing and writes no more
            is_whole = job.snapshot().state == "saving"
            if is_whole or (job.made_s and job.text_source is None):
                self._writer.submit(self._save, job)

    def _close(self, job: SpeechJob, by_engine: bool) -> None:
        if not job.closed(by_engine):
            return
        self._metrics.observe_reader(job)
        self._usage.spoke(job.owner, job.n_chars, job.made_s)
        log.info("%s", line(job))
        if job.is_background or is_guest(job.owner):
            return
        with contextlib.suppress(RuntimeError):  # the studio is closing and writes no more
            self._writer.submit(self._trace, job)

    def _trace(self, job: SpeechJob) -> None:
        with contextlib.suppress(
            NotFound, StorageFull
        ):  # no take of it, or no room to say more of it
            self._takes.update_timings(job)

    def _save(self, job: SpeechJob) -> None:
        error: KaikouError | None = None
        try:
            self._takes.record(job)
        except KaikouError as problem:
            error = problem
        except OSError:
            error = StorageFull()
        if job.snapshot().state == "saving":
            job.saved(error)

    def close(self) -> None:
        """What is to be written is written first."""
        self._writer.shutdown(wait=True)
