"""What is in hand of one partition: tasks in their order, and when the next may be tried. Knows no
brokers.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile

from ...studio.batch.worker import REST_S
from .task import Task

LONGEST_REST = 3  # of REST_S: a studio that is back is noticed within 17 seconds


class Partition:
    """attempts: offset -> how often it has failed. committed_position: the offset and the metadata
    that the broker has; None where it has none.
    """

    def __init__(self, offset: int = -1, metadata: str = ""):
        self.tasks: deque[Task] = deque()
        self.attempts = attempts_of(metadata)
        self.committed_position = (offset, metadata) if offset >= 0 else None
        self._next = max(offset, 0)  # offset behind what was announced
        self._n_rests, self._due_at = 0, 0.0

    @property
    def is_resting(self) -> bool:
        return time.monotonic() < self._due_at

    def open_tasks(self) -> list[Task]:
        """Those that may be tried now."""
        return [] if self.is_resting else [task for task in self.tasks if not task.is_settled]

    def settled_tasks(self) -> list[Task]:
        """Those that may be announced now: no task before them is open."""
        return [] if self.is_resting else list(takewhile(lambda task: task.is_settled, self.tasks))

    def add(self, task: Task) -> None:
        if self.committed_position is None:
            self.committed_position = task.offset, metadata_of([])
        self.tasks.append(task)
        self._next = max(self._next, task.offset)

    def drop_first(self) -> None:
        """It was announced."""
        self._next = self.tasks.popleft().offset + 1

    def to_commit(self) -> tuple[int, str] | None:
        """Offset and metadata that the broker does not have yet."""
        if self.committed_position is None:
            return None
        now = self.tasks[0].offset if self.tasks else self._next, metadata_of(self.tasks)
        return None if now == self.committed_position or self.is_resting else now

    def rest(self) -> None:
        """Nothing of it is tried for a while, longer each time in a row, and never shorter than the
        studio asks.
        """
        self._n_rests += 1
        asked_s = max(
            (task.error.retry_after_s or 0 for task in self.tasks if task.error), default=0
        )
        rest_s = max(REST_S[min(self._n_rests, LONGEST_REST) - 1], asked_s)
        self._due_at = time.monotonic() + rest_s * random.uniform(1.0, 1.1)

    def go_on(self) -> None:
        """Something went well."""
        self._n_rests, self._due_at = 0, 0.0


def metadata_of(tasks: Iterable[Task]) -> str:
    """For the broker, beside the offset: the attempts of what is in hand."""
    counts = {str(task.offset): task.attempts for task in tasks if task.attempts}
    return json.dumps(counts, separators=(",", ":")) if counts else ""


def attempts_of(metadata: str | None) -> dict[int, int]:
    """What `metadata_of` gave; nothing where another program has written it."""
    with suppress(ValueError, TypeError, AttributeError):
        return {int(offset): int(n) for offset, n in json.loads(metadata or "{}").items()}
    return {}
