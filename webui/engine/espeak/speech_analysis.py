"""Takes sound apart, frame by frame: pitch by autocorrelation, spectral envelope by pitch-adaptive
smoothing. Batched float32 FFTs.

Every frame depends only on the samples around it, so any cut into blocks gives the same frames.
Knows no voices and no text. Real even sequences are transformed as such (DCT-I): half the numbers
of a complex transform, and no copies between real and complex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import fft

EMPHASIS = 0.7
PITCH_STEP = 0.01  # rows of the tables, in ln Hz
# window and smoothing width of frames without pitch: 12 ms, short enough for bursts
UNVOICED_HZ = 250.0


@dataclass(frozen=True)
class PitchSearch:
    """Everything about the pitch search that depends only on rate and range."""

    rate: int
    low_hz: float
    high_hz: float
    window: np.ndarray  # float32 (w,)
    size: int  # FFT length, even
    inverse: np.ndarray  # 1 / autocorrelation of the window, per lag
    first: int  # lags first..last-1 are searched
    last: int


def pitch_search(rate: int, low_hz: float, high_hz: float, periods: float = 3.0) -> PitchSearch:
    w = int(periods * rate / low_hz) // 2 * 2
    window = np.hanning(w + 1)[:-1].astype(np.float32)
    first, last = int(rate / high_hz), int(rate / low_hz) + 2
    size = 2 * fft.next_fast_len((w + last + 1) // 2, real=True)
    own = fft.irfft(np.abs(fft.rfft(window.astype(np.float64), size)) ** 2, size)
    return PitchSearch(
        rate,
        low_hz,
        high_hz,
        window,
        size,
        (own[0] / own[: last + 1]).astype(np.float32),
        first,
        last,
    )


def cut_frames(samples: np.ndarray, centres: np.ndarray, width: int) -> np.ndarray:
    """samples float32 (n,), centres int (m,) -> (m, width); what lies outside reads as silence."""
    half = width // 2
    left, right = (
        max(0, half - int(centres[0])),
        max(0, int(centres[-1]) + width - half - len(samples)),
    )
    if left or right:
        samples = np.concatenate((np.zeros(left, np.float32), samples, np.zeros(right, np.float32)))
    return windows(samples, width)[centres - half + left]


def windows(samples: np.ndarray, width: int) -> np.ndarray:
    """Every window of `width` as a row of a view, (n - width + 1, width). numpy's own way to say so
    takes longer than what is read through it.
    """
    return np.ndarray(
        (len(samples) - width + 1, width), samples.dtype, samples, strides=samples.strides * 2
    )


def correlation(frames: np.ndarray, search: PitchSearch) -> tuple[np.ndarray, np.ndarray]:
    """frames (m, w) -> normalised autocorrelation (m, last + 1) and the energy of each windowed
    frame (m,).
    """
    x = (frames - frames.mean(axis=1, keepdims=True)) * search.window
    r = fft.dct(_power(fft.rfft(x, search.size, overwrite_x=True)), 1, overwrite_x=True)[
        :, : search.last + 1
    ]
    energy = r[:, 0] * np.float32(1.0 / search.size)
    r *= search.inverse
    r *= np.float32(1.0 / search.size) / (energy[:, None] + np.float32(1e-9))
    return r, energy


def refine(r: np.ndarray, rows: np.ndarray, lags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parabola through each peak: (lag as float, height)."""
    a, b, c = r[rows, lags - 1], r[rows, lags], r[rows, lags + 1]
    bend = a - 2 * b + c
    shift = np.where(bend < -1e-9, 0.5 * (a - c) / np.where(bend < -1e-9, bend, -1.0), 0.0).clip(
        -0.5, 0.5
    )
    return lags + shift, b - 0.25 * (a - c) * shift


def pitch(
    samples: np.ndarray,
    centres: np.ndarray,
    search: PitchSearch,
    clear: float = 0.55,
    floor: float = 1e-4,
) -> np.ndarray:
    """Pitch of clean speech, frame by frame: float32 (m,), Hz, 0 where there is none.

    For eSpeak's own sound only.
    """
    r, energy = correlation(cut_frames(samples, centres, len(search.window)), search)
    lags = np.arange(search.first, search.last)
    centre, before, after = (
        r[:, search.first : search.last],
        r[:, search.first - 1 : search.last - 1],
        r[:, search.first + 1 : search.last + 1],
    )
    # a slight preference for short lags keeps the tracker off the octave below
    score = centre - 0.03 * np.log2(lags / search.first).astype(np.float32)
    score = np.where((centre >= before) & (centre >= after), score, np.float32(-1.0))
    best = lags[score.argmax(axis=1)]
    lag, height = refine(r, np.arange(len(r)), best)
    quiet = energy < floor * len(search.window) * 0.375 * 1e-2
    is_peak = score[np.arange(len(score)), best - search.first] > -1.0
    f0 = np.where(is_peak & (height > clear) & ~quiet, search.rate / lag, 0.0)
    return f0.astype(np.float32)


@dataclass(frozen=True)
class Smoothing:
    """Tables over pitch for one rate and transform size: one row per percent of pitch, so that
    nothing is computed per frame.
    """

    rate: int
    size: int
    low_hz: float
    window: np.ndarray  # (rows, size) three-period Hann, unit energy
    total: np.ndarray  # (rows, 1) sum of the window, and what its mean removal needs
    lifter: (
        np.ndarray
    )  # (rows, lines) on the lags, 1 / size included: removes what is left of the lines
    bright: np.ndarray  # (lines,) ln power to add back for the pre-emphasis

    def rows(self, f0: np.ndarray) -> np.ndarray:
        return np.clip(
            np.round(np.log(f0 / self.low_hz) / PITCH_STEP), 0, len(self.window) - 1
        ).astype(np.int64)


def smoothing(rate: int, size: int) -> Smoothing:
    low = 3.0 * rate / size
    hz = low * np.exp(PITCH_STEP * np.arange(int(np.log(560.0 / low) / PITCH_STEP) + 1))[:, None]
    angle = (np.arange(size) - size // 2) / (1.5 * rate) * hz
    window = np.where(np.abs(angle) < 1.0, 0.5 + 0.5 * np.cos(np.pi * angle), 0.0)
    window /= np.sqrt((window**2).sum(axis=1, keepdims=True))
    lines = size // 2 + 1
    lag = np.arange(lines) / rate
    lifter = np.sinc(lag * hz) * (1.18 - 0.18 * np.cos(2 * np.pi * lag * hz))
    lifter /= size
    turn = np.abs(1.0 - EMPHASIS * np.exp(-2j * np.pi * np.arange(lines) / size)) ** 2
    f4 = np.float32
    return Smoothing(
        rate,
        size,
        low,
        window.astype(f4),
        window.sum(axis=1, keepdims=True).astype(f4),
        lifter.astype(f4),
        -np.log(turn).astype(f4),
    )


def emphasised(samples: np.ndarray) -> np.ndarray:
    """Brightened before the analysis: float32 then reaches the weak highs beside the strong
    lows.
    """
    out = samples.copy()
    out[1:] -= np.float32(EMPHASIS) * samples[:-1]
    return out


def envelope(
    bright: np.ndarray, centres: np.ndarray, f0: np.ndarray, tables: Smoothing
) -> np.ndarray:
    """bright: emphasised samples (n,), centres int (m,), f0 (m,) Hz with 0 = unvoiced -> log power
    envelope float32 (m, size // 2 + 1).

    Three-period window, power spectrum, low-frequency fill, smoothing over 2/3 of the pitch,
    liftering: the pulse train's own lines vanish.
    """
    size = tables.size
    width = np.where(f0 > 0, np.maximum(f0, tables.low_hz), UNVOICED_HZ).astype(np.float32)
    row = tables.rows(width)
    window = tables.window[row]
    x = cut_frames(bright, centres, size) * window
    x -= window * (x.sum(axis=1, keepdims=True) / tables.total[row])
    power = _power(fft.rfft(x, overwrite_x=True))
    _fill_low(power, width[:, None], np.float32(tables.rate / size))
    smooth = _smooth(power, width * np.float32(size / (3.0 * tables.rate)))
    floor = power.mean(axis=1, keepdims=True) * np.float32(1e-6) + np.float32(1e-10)
    np.maximum(smooth, floor, out=smooth)
    lags = fft.dct(np.log(smooth, out=smooth), 1, overwrite_x=True)
    lags *= tables.lifter[row]
    out = fft.dct(lags, 1, overwrite_x=True)
    out += tables.bright
    return out


def _smooth(power: np.ndarray, half: np.ndarray) -> np.ndarray:
    """(m, lines) -> mean over +-half bins, half (m,) fractional; mirrored at both ends.

    A line counts by how much of its bin lies within: half is a few bins at most, so that many sums
    of shifted rows are less work than differences of a running sum.
    """
    lines, reach, half = power.shape[1], int(half.max() + 0.5), half[:, None]
    mirrored = np.concatenate((power[:, reach:0:-1], power, power[:, -2 : -2 - reach : -1]), axis=1)
    share = np.float32(0.5) / half
    out = power * (np.minimum(half, np.float32(0.5)) * (2 * share))
    for k in range(1, reach + 1):
        pair = (
            mirrored[:, reach - k : reach - k + lines] + mirrored[:, reach + k : reach + k + lines]
        )
        pair *= np.clip(half - np.float32(k - 0.5), 0.0, 1.0) * share
        out += pair
    return out


def _power(spectrum: np.ndarray) -> np.ndarray:
    out = spectrum.real**2
    out += spectrum.imag**2
    return out


def _fill_low(power: np.ndarray, width: np.ndarray, step: np.float32) -> None:
    """Below the pitch a pulse train has no lines: add what lies mirrored above it. In place."""
    n = int(width.max() / step) + 2
    k = np.arange(n, dtype=np.float32)
    mirrored = np.clip(width / step - k, 0.0, None)
    whole = np.floor(mirrored)
    fraction = mirrored - whole
    low = (
        whole.astype(np.int64) + np.arange(0, power.size, power.shape[1])[:, None]
    )  # places in all of it, row after row
    values = power.take(low) * (1 - fraction) + power.take(low + 1) * fraction
    power[:, :n] += np.where(k * step < width, values, 0.0)


__all__ = [
    "PitchSearch",
    "Smoothing",
    "correlation",
    "cut_frames",
    "emphasised",
    "envelope",
    "pitch",
    "pitch_search",
    "refine",
    "smoothing",
    "windows",
]
