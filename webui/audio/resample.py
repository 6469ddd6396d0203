"""Another sampling rate for the same sound."""

from __future__ import annotations

import numpy as np
import soxr


def resample(x: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """float32 (n,) at `from_hz` to float32 at `to_hz`, band limited, without shift in time."""
    x = np.ascontiguousarray(x, np.float32)
    return x if from_hz == to_hz or not len(x) else soxr.resample(x, from_hz, to_hz, quality="HQ").astype(np.float32, copy=False)
