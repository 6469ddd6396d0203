"""Who wants to know of changes to something that has an id: lines of a batch that ended, a key that
was revoked. Blind to what changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class LineEvents:
    """Thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._wakes: dict[str, set[Callable[[], None]]] = {}

    def add(self, watched_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """`wake` is called from other threads at every change of what has that id.

        Returns what ends that.
        """
        with self._lock:
            self._wakes.setdefault(watched_id, set()).add(wake)

        def unwatch() -> None:
            with self._lock:
                wakes = self._wakes.get(watched_id, set())
                wakes.discard(wake)
                if not wakes:
                    self._wakes.pop(watched_id, None)

        return unwatch

    def tell(self, watched_id: str) -> None:
        with self._lock:
            wakes = list(self._wakes.get(watched_id, ()))
        for wake in wakes:
            wake()
