"""An async reader of a job: wakes when the producer has something new.

The bridge between lane threads and the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from anyio import to_thread

from .speech_job import UNLIMITED, Snapshot, SpeechJob
from .studio import Studio


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
    async with JobReader(studio, job) as reader:
        studio.job_runner.credit(job, UNLIMITED)
        while True:
            now = await reader.change()
            if now.error is not None:
                raise now.error
            if now.state == "done" or (now.state == "saving" and not until_saved):
                if until_saved and now.save_error is not None:
                    raise now.save_error
                return job.pcm(0, now.n_samples)
