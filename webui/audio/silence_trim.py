"""Cuts the silence an engine begins with, while it streams.

The result does not depend on how the input is cut.
"""

from __future__ import annotations

import numpy as np

ONSET = 0.004  # about -48 dB: above the floor of a synthesizer, below the first breath of a word


class SilenceTrim:
    """Drops what comes before the first sample louder than ONSET, except the last `keep_s`.

    A stream that stays silent gives nothing.
    """

    def __init__(self, rate: int, keep_s: float = 0.010):
        self._keep = round(keep_s * rate)
        self._pending = np.zeros(0, np.float32)
        self._open = False
        self.dropped = 0  # samples cut so far

    def push(self, x: np.ndarray) -> np.ndarray:
        """x: float32 (n,) -> float32 (m,), m may be 0 before the onset; the very same array after
        it.
        """
        if self._open:
            return x
        buffer = np.concatenate([self._pending, np.asarray(x, np.float32)])
        loud = np.flatnonzero(np.abs(buffer[len(self._pending) :]) > ONSET)
        onset = len(self._pending) + int(loud[0]) if len(loud) else len(buffer)
        start = max(onset - self._keep, 0)
        self.dropped += start
        if not len(loud):
            self._pending = buffer[start:]
            return np.zeros(0, np.float32)
        self._open, self._pending = True, np.zeros(0, np.float32)
        return buffer[start:]
