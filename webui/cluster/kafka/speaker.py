"""Has the studio speak what tasks ask for, and stores each sound as soon as it is whole. Knows no
brokers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from itertools import groupby

from ...client.audio import Sound
from ...client.batch_worker import BatchRunner, Item, Result
from ...client.http_link import pool
from ...client.retry import Bucket, Retry
from ...errors import EngineFault, KaikouError
from .output import Output
from .task import Task

log = logging.getLogger(__name__)
ONCE = Retry(tries=1, patience_s=0.0)  # who waits, and how often, is the consumer's to decide


class Speaker:
    """url, key: of the studio. silence_s: how long it may send nothing of a batch, which waits
    behind everybody who listens. `speak` and `close` are called on one thread, `cancel` on any.
    """

    def __init__(self, url: str, key: str, silence_s: float, output: Output):
        self._http, self._output = pool(url, key or None, "en", 1, None), output
        self._silence_s = silence_s
        self._runner, self._lock = asyncio.Runner(), threading.Lock()
        self._request_task: asyncio.Task | None = None
        self._is_cancelled = False

    def speak(self, tasks: Sequence[Task]) -> None:
        """Each is stored or has failed when this returns, unless it was cancelled."""
        missing = [task for task in tasks if not self._is_stored(task)]
        to_ask = [task for task in missing if task.sound is None and task.error is None]
        for _, group in groupby(to_ask, lambda task: task.item.ask.model):
            batch_tasks = list(group)
            try:
                self._runner.run(self._ask(batch_tasks))
            except asyncio.CancelledError:
                return
            except Exception:  # the partition must go on whatever a message does
                log.exception("a batch stumbled")
                for task in batch_tasks:
                    task.fail(EngineFault())

    def _is_stored(self, task: Task) -> bool:
        """Stored long ago, or by now. A sound that found no room is not asked for again."""
        try:
            key = task.item.key.hex()
            task.error, task.stored_sound = None, self._output.find(key)
            if task.stored_sound is None and task.sound is not None:
                task.stored_sound = self._output.keep(key, task.sound)
        except KaikouError as error:
            task.fail(error)
            return False
        return task.stored_sound is not None

    async def _ask(self, tasks: list[Task]) -> None:
        """One request, behind everybody who listens; where that fails, each task alone."""
        with self._lock:
            if self._is_cancelled:
                return
            self._request_task = asyncio.current_task()
        by_item = {id(task.item): task for task in tasks}

        async def keep(item: Item, sound: Sound, attempts: int) -> Result:
            task = by_item[id(item)]
            task.sound = sound
            await asyncio.to_thread(self._is_stored, task)
            return Result(item.line, sound)

        runner = BatchRunner(self._http, Bucket(), ONCE, self._silence_s, keep, is_background=True)
        results = await runner.make([task.item for task in tasks])
        for task, result in zip(tasks, results, strict=True):
            if result.error is not None:
                task.fail(result.error)

    def cancel(self) -> None:
        """The studio stops what it makes for this consumer; nothing more is asked."""
        with self._lock:
            self._is_cancelled = True
            if self._request_task is not None:
                self._runner.get_loop().call_soon_threadsafe(self._request_task.cancel)

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()
