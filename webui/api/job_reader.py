"""An async reader of a job: wakes when the producer has something new.

The bridge between lane threads and the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from ..studio import Snapshot, SpeechJob, Studio


class JobReader:
    """`async with JobReader(...)`: leaving the block, for whatever reason, cancels a job that is
    not over.
    """

    def __init__(self, studio: Studio, job: SpeechJob):
        self.studio, self.job, self._event = studio, job, asyncio.Event()

    async def __aenter__(self) -> JobReader:
        loop = asyncio.get_running_loop()
        self.job.listen(lambda: loop.call_soon_threadsafe(self._event.set))
        self._event.set()
        return self

    async def __aexit__(self, *_) -> None:
        self.job.listen(None)
        self.studio.job_runner.cancel(self.job)
        self.studio.job_runner.reader_done(self.job)

    def poke(self) -> None:
        self._event.set()

    async def change(self, timeout_s: float | None = None) -> Snapshot:
        """The job's state after the next change, or after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        self._event.clear()
        return self.job.snapshot()


async def open_job(studio: Studio, make: Callable[[], SpeechJob]) -> SpeechJob:
    """Run the blocking `make` off the loop.

    If the caller is cancelled meanwhile, the job that still comes is cancelled too.
    """
    task = asyncio.ensure_future(run_in_threadpool(make))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(
            lambda t: t.cancelled() or t.exception() or studio.job_runner.cancel(t.result())
        )
        raise
