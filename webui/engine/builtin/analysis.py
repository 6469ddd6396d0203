"""Takes sound apart, frame by frame: pitch by autocorrelation, spectral envelope by pitch-adaptive smoothing. Batched float32 FFTs.

Every frame depends only on the samples around it, so any cut into blocks gives the same frames. Knows no voices and no text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft

from .grid import BINS, FFT, LOG_FLOOR

UNVOICED_HZ = 250.0  # window and smoothing width of frames without pitch: 12 ms, short enough for bursts


@dataclass(frozen=True)
class PitchSearch:
    """Everything about the pitch search that depends only on rate and range."""

    rate: int
    low_hz: float
    high_hz: float
    window: np.ndarray  # float32 (w,)
    size: int  # FFT length
    inverse: np.ndarray  # 1 / autocorrelation of the window, per lag
    first: int  # lags first..last-1 are searched
    last: int


def pitch_search(rate: int, low_hz: float, high_hz: float, periods: float = 3.0) -> PitchSearch:
    w = int(periods * rate / low_hz) // 2 * 2
    window = np.hanning(w + 1)[:-1].astype(np.float32)
    first, last = int(rate / high_hz), int(rate / low_hz) + 2
    size = fft.next_fast_len(w + last, real=True)
    own = fft.irfft(np.abs(fft.rfft(window.astype(np.float64), size)) ** 2, size)
    return PitchSearch(rate, low_hz, high_hz, window, size, (own[0] / own[: last + 1]).astype(np.float32), first, last)


def cut_frames(samples: np.ndarray, centres: np.ndarray, width: int) -> np.ndarray:
    """samples float32 (n,), centres int (m,) -> (m, width); what lies outside reads as silence."""
    half = width // 2
    left, right = max(0, half - int(centres[0])), max(0, int(centres[-1]) + width - half - len(samples))
    if left or right:
        samples = np.concatenate((np.zeros(left, np.float32), samples, np.zeros(right, np.float32)))
    starts = centres - half + left
    return np.lib.stride_tricks.sliding_window_view(samples, width)[starts]


def correlation(frames: np.ndarray, search: PitchSearch) -> tuple[np.ndarray, np.ndarray]:
    """frames (m, w) -> normalised autocorrelation (m, last + 1) and the energy of each windowed frame (m,)."""
    x = (frames - frames.mean(axis=1, keepdims=True)) * search.window
    spectrum = fft.rfft(x, search.size, overwrite_x=True)
    power = spectrum.real**2 + spectrum.imag**2
    r = fft.irfft(power, search.size)[:, : search.last + 1]
    energy = r[:, 0].copy()
    r = r * search.inverse / (energy[:, None] + 1e-9)
    return r, energy


def refine(r: np.ndarray, rows: np.ndarray, lags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parabola through each peak: (lag as float, height)."""
    a, b, c = r[rows, lags - 1], r[rows, lags], r[rows, lags + 1]
    bend = a - 2 * b + c
    shift = np.where(bend < -1e-9, 0.5 * (a - c) / np.where(bend < -1e-9, bend, -1.0), 0.0).clip(-0.5, 0.5)
    return lags + shift, b - 0.25 * (a - c) * shift


def pitch(samples: np.ndarray, centres: np.ndarray, search: PitchSearch, clear: float = 0.55, floor: float = 1e-4) -> np.ndarray:
    """Pitch of clean speech, frame by frame: float32 (m,), Hz, 0 where there is none. For eSpeak's own sound only."""
    r, energy = correlation(cut_frames(samples, centres, len(search.window)), search)
    lags = np.arange(search.first, search.last)
    # a slight preference for short lags keeps the tracker off the octave below
    score = r[:, search.first : search.last] - 0.02 * np.log2(lags / search.first).astype(np.float32)
    best = lags[score.argmax(axis=1)]
    lag, height = refine(r, np.arange(len(r)), best)
    quiet = energy < floor * len(search.window) * 0.375 * 1e-2
    f0 = np.where((height > clear) & ~quiet, search.rate / lag, 0.0)
    return f0.astype(np.float32)


def envelope(samples: np.ndarray, centres: np.ndarray, f0: np.ndarray, rate: int, size: int = FFT) -> np.ndarray:
    """samples float32 (n,), centres int (m,), f0 (m,) Hz with 0 = unvoiced -> log power envelope float32 (m, size // 2 + 1).

    Three-period window, power spectrum, low-frequency fill, smoothing over 2/3 of the pitch, liftering: the pulse train's own lines vanish.
    """
    width = np.where(f0 > 0, np.maximum(f0, 3.0 * rate / size), UNVOICED_HZ).astype(np.float32)[:, None]
    frames = cut_frames(samples, centres, size)
    reach = (np.arange(size, dtype=np.float32) - size // 2) * (1.0 / (1.5 * rate))
    angle = reach * width
    window = np.where(np.abs(angle) < 1.0, 0.5 + 0.5 * np.cos(np.pi * angle), np.float32(0.0))
    x = frames * window
    total = window.sum(axis=1, keepdims=True)
    x -= window * (x.sum(axis=1, keepdims=True) / total)
    x *= 1.0 / np.sqrt((window * window).sum(axis=1, keepdims=True))
    spectrum = fft.rfft(x, overwrite_x=True)
    power = spectrum.real**2 + spectrum.imag**2
    lines = size // 2 + 1
    step = np.float32(rate / size)
    _fill_low(power, width, step)
    smooth = _smooth(power, width / (3.0 * step), lines)
    cepstrum = fft.irfft(np.log(smooth + 1e-10), size)
    return _lifter(cepstrum, width, rate, size)


def _fill_low(power: np.ndarray, width: np.ndarray, step: np.float32) -> None:
    """Below the pitch a pulse train has no lines: add what lies mirrored above it. In place."""
    n = int(width.max() / step) + 2
    k = np.arange(n, dtype=np.float32)
    mirrored = np.clip(width / step - k, 0.0, None)
    low = mirrored.astype(np.int64)
    fraction = mirrored - low
    values = np.take_along_axis(power, low, 1) * (1 - fraction) + np.take_along_axis(power, low + 1, 1) * fraction
    power[:, :n] += np.where(k * step < width, values, 0.0)


def _smooth(power: np.ndarray, half: np.ndarray, lines: int) -> np.ndarray:
    """Mean over +-half bins (half: (m, 1), fractional), mirrored at both ends."""
    pad = int(half.max()) + 3
    mirrored = np.concatenate((power[:, pad:0:-1], power, power[:, -2 : -2 - pad : -1]), axis=1)
    integral = np.cumsum(mirrored, axis=1, dtype=np.float64)
    integral = np.concatenate((np.zeros((len(power), 1)), integral), axis=1)
    centre = np.arange(lines, dtype=np.float32) + (pad + 0.5)

    def at(position: np.ndarray) -> np.ndarray:
        low = position.astype(np.int64)
        fraction = position - low
        return np.take_along_axis(integral, low, 1) * (1 - fraction) + np.take_along_axis(integral, low + 1, 1) * fraction

    out = (at(centre + half) - at(centre - half)) / (2 * half)
    return np.maximum(out, 0.0).astype(np.float32)


def _lifter(cepstrum: np.ndarray, width: np.ndarray, rate: int, size: int) -> np.ndarray:
    lines = size // 2 + 1
    quefrency = np.arange(lines, dtype=np.float32) * (1.0 / rate)
    x = width * quefrency
    lifter = np.sinc(x) * (1.18 - 0.18 * np.cos(2 * np.pi * x))
    half = (cepstrum[:, :lines] * lifter).astype(np.float32)
    # the spectrum of an even cepstrum: a real transform of its folded half
    full = np.zeros((len(cepstrum), size), np.float32)
    full[:, :lines] = half
    full[:, lines:] = half[:, lines - 2 : 0 : -1]
    return fft.rfft(full, overwrite_x=True).real.astype(np.float32)


def log_floor() -> float:
    return float(np.log(LOG_FLOOR))


__all__ = ["BINS", "PitchSearch", "correlation", "cut_frames", "envelope", "pitch", "pitch_search", "refine"]
