"""Is there music behind a voice?

Looks for partials that keep their pitch for longer than those of a voice do, several at a time.

Peaks of a long spectrum, interpolated (Smith and Serra, "PARSHL", 1987) and followed from frame to
frame (McAulay and Quatieri, "Speech analysis/synthesis based on a sinusoidal representation",
1986). Blind on purpose to what one voice or a machine may do as well: the partials of a single
steady tone, and what sounds from beginning to end. So it hears chords, and neither drums nor a lone
flute.
"""

from __future__ import annotations

import numpy as np

from .clip import Clip
from .resample import resample

RATE_HZ, SIZE, HOP = (
    8000,
    1024,
    256,
)  # 128 ms every 32 ms: 8 Hz apart, and all that a telephone lets through
LOW_HZ, HIGH_HZ = 180.0, 3300.0
STEADY = 14  # frames, 0.45 s: the level tones of Mandarin last 0.3 s
CELL_HZ = 6.0  # what is steady stays within it
OVER_DB, RANGE_DB = 12.0, 55.0  # a peak over what lies around it, and below the loudest of the clip
AROUND = 20  # bins on each side
ALWAYS = 0.7  # share of the frames: hum, a fan
COMB_HZ, VOICE_HZ, MOST = 2.5, 70.0, 0.78  # MOST: all of four, four of five
MAINS_HZ, NEAR_MAINS_HZ = (50.0, 60.0), 2.0
SHARE = 0.12  # of the frames, with two such partials or more


def has_music(clip: Clip) -> bool:
    return music_share(clip) > SHARE


def music_share(clip: Clip) -> float:
    """Share of the frames, 0..1, in which two partials or more are steady that one voice would not
    have together.
    """
    x = resample(clip.samples, clip.rate, RATE_HZ)
    if len(x) < (STEADY + 1) * HOP + SIZE:
        return 0.0
    hz = _peaks(x)
    peaks = max(
        (_steady(hz, shift) for shift in (0.0, CELL_HZ / 2)), key=lambda s: int(s.sum())
    )  # what lies on the edge of a cell lies within one of the others
    many = np.flatnonzero(peaks.sum(axis=1) >= 2)
    at = (np.arange(peaks.shape[1]) + 0.5) * CELL_HZ
    sampled_frames = many[::4]  # neighbours are alike
    n = sum(not _is_one_tone(_exact(hz[t], at[peaks[t]])) for t in sampled_frames)
    return n / max(len(sampled_frames), 1) * len(many) / len(hz)


def _peaks(x: np.ndarray) -> np.ndarray:
    """(frames, bins) Hz of the peak in that bin, 0 where there is none."""
    frames = np.lib.stride_tricks.sliding_window_view(x, SIZE)[::HOP]
    spectrum = np.fft.rfft(frames * np.hanning(SIZE).astype(np.float32), axis=1)
    level = 10 * np.log10(spectrum.real**2 + spectrum.imag**2 + 1e-10).astype(np.float32)
    low, high = round(LOW_HZ * SIZE / RATE_HZ), round(HIGH_HZ * SIZE / RATE_HZ)
    total = np.cumsum(np.pad(level[:, low - AROUND : high + AROUND], ((0, 0), (1, 0))), axis=1)
    wide = 2 * AROUND
    around = (total[:, wide:] - total[:, :-wide])[:, : high - low] / wide
    left, centre, right = (
        level[:, low - 1 : high - 1],
        level[:, low:high],
        level[:, low + 1 : high + 1],
    )
    is_peak = (
        (centre > left)
        & (centre >= right)
        & (centre > around + OVER_DB)
        & (centre > np.percentile(level.max(axis=1), 95) - RANGE_DB)
    )
    t, b = np.nonzero(is_peak)
    a, c, d = left[t, b], centre[t, b], right[t, b]
    hz = np.zeros(centre.shape, np.float32)
    exact = (low + b + 0.5 * (a - d) / np.minimum(a - 2 * c + d, -1e-6)) * RATE_HZ / SIZE
    is_hum = np.any(
        [np.abs(exact - np.round(exact / m) * m) < NEAR_MAINS_HZ for m in MAINS_HZ], axis=0
    )
    hz[t, b] = np.where(is_hum, 0, exact)
    return hz


def _steady(hz: np.ndarray, shift: float) -> np.ndarray:
    """(frames, cells) bool: a peak stays in this cell for STEADY frames around, one of them missing
    at most.
    """
    t, b = np.nonzero(hz)
    cells = np.zeros((len(hz), int(HIGH_HZ / CELL_HZ) + 4), np.int16)
    cells[t, ((hz[t, b] + shift) / CELL_HZ).astype(int)] = 1
    cells[:, cells.mean(axis=0) > ALWAYS] = 0
    total = np.cumsum(np.pad(cells, ((1, 0), (0, 0))), axis=0, dtype=np.int16)
    long = np.pad(
        (total[STEADY:] - total[:-STEADY] >= STEADY - 1).astype(np.int16),
        ((STEADY, STEADY - 1), (0, 0)),
    )
    spread = np.cumsum(long, axis=0, dtype=np.int16)
    return (spread[STEADY:] - spread[:-STEADY] > 0)[: len(hz)] & (cells > 0)


def _exact(hz: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """The peaks of a frame that lie in or beside these cells."""
    present_hz = hz[hz > 0]
    return present_hz[(np.abs(present_hz[:, None] - cells) < CELL_HZ).any(axis=1)]


def _is_one_tone(hz: np.ndarray) -> bool:
    """All of them are overtones of one pitch in the range of voices: somebody hums, sings, or
    speaks on one note.
    """
    if len(hz) < 2:
        return True
    gaps = np.diff(np.sort(hz))
    for base in {
        *(float(g) / k for g in gaps for k in (1, 2)),
        *(float(hz.min()) / k for k in (1, 2, 3)),
    }:
        if base >= VOICE_HZ:
            order = np.maximum(np.round(hz / base), 1)
            exact = float(
                (hz * order).sum() / (order**2).sum()
            )  # the base that fits all of them best
            if np.mean(np.abs(hz - exact * order) < COMB_HZ) > MOST:
                return True
    return False
