"""Bends the timbre of a clause with filters that follow its frames: the mapping's change of the envelope, applied to the sound itself."""

from __future__ import annotations

import numpy as np
from scipy import fft

from ..builtin.analysis import (
    cut_frames,
    emphasised,
    envelope,
    pitch,
    pitch_search,
    smoothing,
)
from ..builtin.conversion import Converter
from ..builtin.grid import BINS, SOURCE_HZ, warp, warp_columns
from ..builtin.profile import at_rate
from ..builtin.stock import halved
from .network import RATE_HZ

WINDOW, HOP = 1200, 300
LOWEST, HIGHEST = -4.0, 3.2  # ln power: -17 and +14 dB
_SEARCH = pitch_search(SOURCE_HZ // 2, 60.0, 450.0)  # lower than eSpeak's voice ever is
_TABLES = smoothing(SOURCE_HZ, 1024)
_HANN = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
_OVERLAP = np.float32(1.0 / (_HANN.reshape(-1, HOP) ** 2).sum(axis=0).mean())
_SAME = warp_columns(1.0)
_AT_ONCE = 128  # frames: all of a clause would need a hundred megabytes


def analyse(sound: np.ndarray, hop: int = HOP) -> tuple[np.ndarray, np.ndarray]:
    """float32 (n,) at 24 kHz -> f0 (m,) Hz and log power (m, 257) on the source grid, a frame every `hop` samples from the first on."""
    [source] = at_rate(sound.astype(np.float64), RATE_HZ, (SOURCE_HZ,))
    half, bright = halved(source), emphasised(source)
    centres = np.round(np.arange(0, len(sound) + 1, hop) * (SOURCE_HZ / RATE_HZ)).astype(np.int64)
    f0, log_power = [], []
    for i in range(0, len(centres), _AT_ONCE):
        part = centres[i : i + _AT_ONCE]
        f0.append(pitch(half, part // 2, _SEARCH))
        log_power.append(envelope(bright, part, f0[-1], _TABLES)[:, ::2])
    return np.concatenate(f0), np.concatenate(log_power)


def gains(
    converter: Converter, log_power: np.ndarray, f0: np.ndarray, tilt: np.ndarray | None = None
) -> np.ndarray:
    """ln power per frame and target bin (m, 257), smoothed over three frames and held within what a filter may do."""
    change = converter.frames(log_power, f0, tilt) - warp(log_power, _SAME)
    change = np.clip(change, LOWEST, HIGHEST)
    padded = np.concatenate((change[:1], change, change[-1:]))
    return 0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]


def equalise(sound: np.ndarray, converter: Converter, tilt: np.ndarray | None = None) -> np.ndarray:
    """float32 (n,) at 24 kHz -> the same length, in the reference's timbre."""
    f0, log_power = analyse(sound)
    change = gains(converter, log_power, f0, tilt)
    at = np.linspace(0, BINS - 1, WINDOW // 2 + 1)
    low = np.minimum(at.astype(np.int64), BINS - 2)
    share = (at - low).astype(np.float32)
    change = change[:, low] * (1 - share) + change[:, low + 1] * share
    frames = cut_frames(sound, np.arange(0, len(sound) + 1, HOP), WINDOW) * _HANN
    made = fft.irfft(fft.rfft(frames) * np.exp(0.5 * change), WINDOW)
    made *= _HANN * _OVERLAP
    out = np.zeros(len(made) * HOP + WINDOW - HOP, np.float32)
    for k in range(0, WINDOW, HOP):  # every frame's k-th quarter falls on a place of its own
        out[k : k + len(made) * HOP] += made[:, k : k + HOP].reshape(-1)
    return out[WINDOW // 2 : WINDOW // 2 + len(sound)]


__all__ = ["analyse", "equalise", "gains"]
