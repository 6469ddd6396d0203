"""Jobs of the last minute: for cancel by id, and for a reader whose socket broke and who comes back
for the rest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from ..studio import SpeechJob

KEEP_S = 60.0


class RecentJobs:
    """Bounded by age after the end, by number and by bytes; what is no longer here is spoken again
    with its seed. Used on the event loop only.
    """

    def __init__(
        self,
        max_jobs: int = 256,
        max_bytes: int = 32 << 20,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._jobs: OrderedDict[str, SpeechJob] = OrderedDict()
        self._max_jobs, self._max_bytes, self._clock = max_jobs, max_bytes, clock

    def keep(self, job: SpeechJob) -> None:
        self._jobs[job.id] = job
        self.sweep()

    def find(self, job_id: object, owner: str) -> SpeechJob | None:
        self.sweep()
        job = self._jobs.get(job_id) if isinstance(job_id, str) else None
        return job if job is not None and job.owner == owner else None

    def sweep(self) -> None:
        """Old first, and only those that are over."""
        now, n, size = (
            self._clock(),
            len(self._jobs),
            sum(j.produced * 2 for j in self._jobs.values()),
        )
        for key, job in list(self._jobs.items()):
            is_old = now - job.born_s > KEEP_S + job.produced / job.rate
            if job.is_over and (is_old or n > self._max_jobs or size > self._max_bytes):
                del self._jobs[key]
                n, size = n - 1, size - job.produced * 2

    def __len__(self) -> int:
        return len(self._jobs)
