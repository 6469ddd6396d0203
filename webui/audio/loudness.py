"""Programme loudness after ITU-R BS.1770-4 (K weighting, two gates), from short-time power.

Mono.
"""

from __future__ import annotations

import numpy as np

from .clip import Clip
from .spectrum import HOP_S, analyse

BLOCK, STEP = 40, 10  # 400 ms blocks, 75 % overlap, in hops
SILENT_LUFS = -70.0


def loudness_lufs(clip: Clip) -> float:
    """LUFS of a mono clip (one channel counted once); -70 for silence."""
    spectrum = analyse(clip)
    return loudness_of(spectrum.power, spectrum.hz)


def loudness_of(power: np.ndarray, hz: np.ndarray) -> float:
    """power: (frames, bins), frames every 10 ms, rows summing to the mean square."""
    assert HOP_S == 0.010  # noqa: S101  the gates below count such frames
    frame = power @ _weight(hz).astype(np.float32)
    total = np.cumsum(np.concatenate([[0.0], frame]))
    n = min(BLOCK, len(frame))
    starts = np.arange(0, len(frame) - n + 1, STEP)
    blocks = (total[starts + n] - total[starts]) / n
    loud = blocks[_lufs(blocks) > SILENT_LUFS]
    if not len(loud):
        return SILENT_LUFS
    gated_power = loud[_lufs(loud) > _lufs(loud.mean()) - 10]
    return float(_lufs(gated_power.mean()))


def _lufs(mean_square):
    return -0.691 + 10 * np.log10(np.maximum(mean_square, 1e-12))


def _weight(hz: np.ndarray) -> np.ndarray:
    """|K(f)|^2: the standard's two filters, given there at 48 kHz, here as the analogue curves they
    are made from.
    """
    w = 2j * np.pi * hz
    f, q, gain_db, slope = 1681.9744509555319, 0.7071752369554193, 3.99984385397, 0.4996667741545416
    w0, high = 2 * np.pi * f, 10 ** (gain_db / 20)
    shelf = (high * w**2 + high**slope * w0 / q * w + w0**2) / (w**2 + w0 / q * w + w0**2)
    w0, q = 2 * np.pi * 38.13547087613982, 0.5003270373253953
    cut = w**2 / (w**2 + w0 / q * w + w0**2)
    return np.abs(shelf * cut) ** 2
