"""Listens to a reference: samples in, Profile out, or a named refusal.

Runs in the encoding process; knows no base voice.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

from ...errors import BadInput
from .mel_bands import BINS, DCT, RATE_HZ, bands_of, energy_of, target_hz
from .speech_analysis import (
    PitchSearch,
    correlation,
    cut_frames,
    emphasised,
    envelope,
    pitch_search,
    refine,
    smoothing,
)
from .voice_mapping import Profile

PITCH_HZ = 8000  # the pitch search needs no more
FRAME_S = 0.005
MAX_S, MIN_ACTIVE_S = 10.0, 0.8
MIN_VOICED = 40
KEPT_FRAMES = 320
CANDIDATES = 5
DEFAULT_HZ, DEFAULT_SD = 170.0, 2.5 * math.log(2) / 12


def at_rate(samples: np.ndarray, rate: int, rates_hz: tuple[int, ...]) -> list[np.ndarray]:
    """Resample by one transform, without DC and what lies below 50 Hz: float32 arrays at each
    wanted rate.
    """
    unit = math.lcm(*(rate // math.gcd(rate, w) for w in rates_hz))
    n = fft.next_fast_len(-(-(len(samples) + rate // 10) // unit), real=True) * unit
    spectrum = fft.rfft(samples, n)
    hz = np.arange(len(spectrum)) * (rate / n)
    spectrum *= np.clip((hz - 35.0) / 20.0, 0.0, 1.0)
    out = []
    for w in rates_hz:
        size = n * w // rate
        resized_spectrum = np.zeros(size // 2 + 1, complex)
        top = min(len(resized_spectrum), len(spectrum))
        resized_spectrum[:top] = spectrum[:top]
        y = fft.irfft(resized_spectrum, size) * (size / n)
        out.append(y[: round(len(samples) * w / rate)].astype(np.float32))
    return out


def track_pitch(samples: np.ndarray, times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pitch of any speaker (60-520 Hz): the best path through autocorrelation peaks. samples at 8
    kHz -> (f0 (m,), clarity (m,)).
    """
    search = pitch_search(PITCH_HZ, 60.0, 520.0)
    centres = np.round(times_s * PITCH_HZ).astype(np.int64)
    r, energy = correlation(cut_frames(samples, centres, len(search.window)), search)
    hz, strength = _candidates(r, search)
    loud = np.sqrt(energy / (np.percentile(energy, 95) + 1e-12))
    unvoiced = 0.45 + np.clip(0.3 - 10.0 * loud, 0.0, None)
    path = _best_path(hz, strength, unvoiced)
    rows = np.arange(len(path))
    voiced = path < CANDIDATES
    column = np.minimum(path, CANDIDATES - 1)
    return np.where(voiced, hz[rows, column], 0.0), np.where(voiced, strength[rows, column], 0.0)


def _candidates(r: np.ndarray, search: PitchSearch) -> tuple[np.ndarray, np.ndarray]:
    """The CANDIDATES highest peaks of every frame: Hz (m, c) and strength (m, c); strength -1 where
    there are fewer.
    """
    a, b, c = (
        r[:, search.first - 1 : search.last - 1],
        r[:, search.first : search.last],
        r[:, search.first + 1 : search.last + 1],
    )
    peak = np.where((b > a) & (b >= c), b, -1.0)
    order = np.argsort(-peak, axis=1)[:, :CANDIDATES]
    rows = np.repeat(np.arange(len(r)), CANDIDATES)
    lags, height = refine(r, rows, order.ravel() + search.first)
    hz = (search.rate / lags).reshape(order.shape)
    is_peak = np.take_along_axis(peak, order, 1) > 0
    # many lags fit a periodic sound; the shortest is the pitch
    strength = height.reshape(order.shape) - 0.03 * np.log2(search.high_hz / hz)
    return hz, np.where(is_peak, strength, -1.0)


def _best_path(hz: np.ndarray, strength: np.ndarray, unvoiced: np.ndarray) -> np.ndarray:
    """Viterbi over candidates and "no pitch" (index CANDIDATES): jumps and voicing changes cost."""
    log = np.log2(hz)
    score = np.concatenate((strength, unvoiced[:, None]), axis=1)
    back = np.zeros(score.shape, np.int64)
    total = score[0].copy()
    step = np.zeros((CANDIDATES + 1, CANDIDATES + 1))
    step[:CANDIDATES, CANDIDATES] = step[CANDIDATES, :CANDIDATES] = 0.07
    for i in range(1, len(score)):
        step[:CANDIDATES, :CANDIDATES] = 0.35 * np.minimum(
            np.abs(log[i - 1][:, None] - log[i][None, :]), 3.0
        )
        ways = total[:, None] - step
        back[i] = ways.argmax(axis=0)
        total = ways.max(axis=0) + score[i]
    path = np.empty(len(score), np.int64)
    path[-1] = total.argmax()
    for i in range(len(score) - 1, 0, -1):
        path[i - 1] = back[i, path[i]]
    return path


def syllable_rate(samples: np.ndarray, active_s: float) -> float:
    """Nuclei per active second: peaks of 0.3-3.2 kHz energy, smoothed over 25 ms, 2 dB prominent,
    80 ms apart. samples at 8 kHz.
    """
    step = PITCH_HZ // 100
    centres = np.arange(step // 2, len(samples), step)
    frames = cut_frames(samples, centres, 256) * np.hanning(256).astype(np.float32)
    power = np.abs(fft.rfft(frames)) ** 2
    level = 10 * np.log10(power[:, 10:102].sum(axis=1) + 1e-9)
    level = np.convolve(np.pad(level, 1, "edge"), [0.25, 0.5, 0.25], "valid")
    top = np.percentile(level, 95)
    nuclei, last, valley = 0, -99, level[0]
    for i in range(1, len(level) - 1):
        valley = min(valley, level[i])
        if (
            level[i] >= level[i - 1]
            and level[i] > level[i + 1]
            and level[i] > top - 25
            and level[i] - valley > 2
            and i - last >= 8
        ):
            nuclei, last, valley = nuclei + 1, i, level[i]
    return nuclei / max(active_s, 0.1)


def listen(samples: np.ndarray, rate: int) -> Profile:
    """float (n,) at `rate` Hz -> Profile. Raises BadInput: not_finite, silent, too_short."""
    x = np.asarray(samples, dtype=np.float64).reshape(-1)[: int(MAX_S * rate)]
    if not np.isfinite(x).all():
        raise BadInput("not_finite.reference", param="reference")
    if len(x) < MIN_ACTIVE_S * rate:
        raise BadInput("too_short.reference", param="reference")
    if np.sqrt(np.mean(x * x)) < 1e-4:
        raise BadInput("silent.reference", param="reference")
    wide, narrow = at_rate(x, rate, (RATE_HZ, PITCH_HZ))
    times = (np.arange(int(len(wide) / RATE_HZ / FRAME_S)) + 0.5) * FRAME_S
    centres = np.round(times * RATE_HZ).astype(np.int64)
    blocks = cut_frames(wide, centres, int(0.02 * RATE_HZ))
    loudness = 10 * np.log10(np.mean(blocks * blocks, axis=1) + 1e-10)
    peak = np.percentile(loudness, 95)
    if peak < -65:
        raise BadInput("silent.reference", param="reference")
    active = loudness > peak - 30
    if active.sum() * FRAME_S < MIN_ACTIVE_S:
        raise BadInput("too_short.reference", param="reference")
    rms = math.sqrt(float(np.mean(10 ** (loudness[active] / 10))))
    wide, narrow = wide * np.float32(0.1 / rms), narrow * np.float32(0.1 / rms)
    f0, _ = track_pitch(narrow, times)
    return _summarise(wide, narrow, times, f0, active, rms, min(rate, RATE_HZ) / 2)


def _summarise(wide, narrow, times, f0, active, rms, nyquist_hz) -> Profile:
    voiced = (f0 > 0) & active
    notes: tuple[str, ...] = ()
    if voiced.sum() >= MIN_VOICED:
        log = np.log(f0[voiced])
        near = log[np.abs(log - np.median(log)) < 0.9]
        low, p16, middle, p84, high = np.percentile(near, [2, 16, 50, 84, 98])
        spread = max((p84 - p16) / 2, 0.02)
    else:
        notes = ("few_voiced_frames",)
        f0 = np.zeros_like(f0)
        voiced = active
        middle, spread = math.log(DEFAULT_HZ), DEFAULT_SD
        low, high = middle - 2 * spread, middle + 2 * spread
    log_power = envelope(
        emphasised(wide),
        np.round(times * RATE_HZ).astype(np.int64),
        f0.astype(np.float32),
        smoothing(RATE_HZ, 1024),
    )[:, ::2]
    bands = bands_of(log_power)
    energy = energy_of(bands)
    level = bands - energy
    unvoiced = active & ~(f0 > 0)
    quiet = unvoiced if unvoiced.sum() >= 10 and not notes else voiced
    gap = float(np.median(energy[quiet]) - np.median(energy[voiced])) if quiet is unvoiced else 0.0
    frames = np.flatnonzero(voiced)
    frames = frames[np.linspace(0, len(frames) - 1, min(KEPT_FRAMES, len(frames))).astype(int)]
    return Profile(
        float(middle), float(spread), float(low), float(high), level[frames].astype(np.float32),
        level[voiced].mean(axis=0).astype(np.float32), level[quiet].mean(axis=0).astype(np.float32),
        np.ones(BINS, np.float32) if notes else breathiness(wide, times[frames], f0[frames]),
        gap, syllable_rate(narrow, float(active.sum()) * FRAME_S), float(active.sum()) * FRAME_S,
        rms, nyquist_hz, notes,
    )  # fmt: skip


def breathiness(
    samples: np.ndarray, times_s: np.ndarray, f0: np.ndarray, most: int = 160
) -> np.ndarray:
    """Geometric mean aperiodicity of voiced frames, (257,) on the target grid, 0..1."""
    import pyworld

    pick = np.linspace(0, len(f0) - 1, min(most, len(f0))).astype(int)
    ap = pyworld.d4c(
        samples.astype(np.float64),
        np.ascontiguousarray(f0[pick], dtype=np.float64),
        np.ascontiguousarray(times_s[pick]),
        RATE_HZ,
        fft_size=1024,
    )
    return np.exp(np.log(np.clip(ap, 1e-4, 1.0)).mean(axis=0))[::2].astype(np.float32)


__all__ = ["DCT", "breathiness", "listen", "syllable_rate", "target_hz", "track_pitch"]
