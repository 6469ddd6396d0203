"""When a batch will be over, from the pace of its last lines.

Reads the monotonic clock only: one that is set by hand has no say.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

LAST = 32  # lines that the pace is taken from


class EtaEstimator:
    """Characters a second. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._history: deque[tuple[float, int]] = deque([(clock(), 0)], LAST + 1)

    def add(self, chars: int) -> None:
        """A line of so many characters was made just now."""
        self._history.append((self._clock(), max(1, chars)))

    def eta_s(self, chars: int) -> float | None:
        """Seconds until so many more are made; None before two lines are."""
        if len(self._history) < 3:
            return None
        took_s = max(self._history[-1][0] - self._history[0][0], 1e-3)
        return chars * took_s / sum(n for _, n in list(self._history)[1:])
