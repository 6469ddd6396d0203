"""Whether a stretch of sound begins or ends inside a word."""

from __future__ import annotations

import numpy as np

STEP_S = 0.015


def broken_edges(x: np.ndarray, rate: int, loud_db: float) -> tuple[bool, bool]:
    """(start, end).

    Broken is an edge at the level of its neighbourhood: whole words rise and fall. loud_db: level
    of loud speech, dBFS.
    """
    return _is_broken(x, rate, loud_db), _is_broken(x[::-1], rate, loud_db)


def _is_broken(x: np.ndarray, rate: int, loud_db: float) -> bool:
    size = round(STEP_S * rate)
    near = x[: min(7, len(x) // size) * size].reshape(-1, size).astype(np.float64)
    if not len(near):
        return False
    level = 10 * np.log10(np.mean(near**2, axis=1) + 1e-12)
    return bool(level[0] > loud_db - 9 or (level[0] > loud_db - 18 and level[0] > level.max() - 5))
