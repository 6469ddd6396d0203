"""Who wants to know when lines of a batch have ended. Blind to what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watchers:
    """Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._wakes: dict[str, set[Callable[[], None]]] = {}

    def add(self, job_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """`wake` is called from other threads whenever a line of that job has ended. Returns what ends that."""
        with self._lock:
            self._wakes.setdefault(job_id, set()).add(wake)

        def unwatch() -> None:
            with self._lock:
                mine = self._wakes.get(job_id, set())
                mine.discard(wake)
                if not mine:
                    self._wakes.pop(job_id, None)

        return unwatch

    def tell(self, job_id: str) -> None:
        with self._lock:
            wakes = list(self._wakes.get(job_id, ()))
        for wake in wakes:
            wake()
