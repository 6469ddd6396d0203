"""Short-time power of a clip, and which of its frames are speech.

All that is measured about a clip starts here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .clip import Clip

HOP_S, FRAME_S = 0.010, 0.032
PITCH_HZ, PITCH_MIN_HZ, PITCH_MAX_HZ = (
    8000,
    70,
    450,
)  # the rate voicing is measured at, and the range of voices
FLOOR_DB = -100.0


@dataclass(frozen=True)
class Spectrum:
    """power: float32 (frames, bins), scaled so that a row sums to the mean square of the windowed
    sound; hz: (bins,).
    """

    power: np.ndarray
    hz: np.ndarray
    level_db: np.ndarray  # (frames,) of the speech band, smoothed over 50 ms, dBFS
    voiced: np.ndarray  # (frames,) 0..1, how periodic the frame is
    noise: np.ndarray  # (bins,) steady background, same scale as power
    speech: np.ndarray  # (frames,) bool


def analyse(clip: Clip) -> Spectrum:
    """Frames of 32 ms, every 10 ms. The clip must hold at least 0.1 s."""
    power, hz = _power(clip.samples, clip.rate)
    band = (hz >= 100) & (hz <= 5000)
    level = _smooth(power[:, band].sum(axis=1), 5)
    level_db = 10 * np.log10(np.maximum(level, 1e-10))
    voiced = _voicing(clip, len(power))
    speech = _speech(level_db, voiced)
    return Spectrum(power, hz, level_db, voiced, _noise(power, level_db, speech), speech)


def _power(x: np.ndarray, rate: int) -> tuple[np.ndarray, np.ndarray]:
    hop, size = round(HOP_S * rate), round(FRAME_S * rate)
    n_fft = _good_size(size)
    window = np.hanning(size + 1)[:-1].astype(np.float32)
    padded = np.concatenate([np.zeros(size // 2, np.float32), x, np.zeros(size, np.float32)])
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop][: len(x) // hop + 1]
    power = np.empty((len(frames), n_fft // 2 + 1), np.float32)
    for i in range(
        0, len(frames), 512
    ):  # in blocks: all frames at once would hold four copies of the clip
        spectrum = np.fft.rfft(frames[i : i + 512] * window, n_fft, axis=1)
        power[i : i + 512] = spectrum.real**2 + spectrum.imag**2
    power *= np.float32(2 / (n_fft * np.sum(window**2)))
    return power, np.fft.rfftfreq(n_fft, 1 / rate)


def _good_size(n: int) -> int:
    """The next even length of 2, 3 and 5 only; other lengths make the transform several times
    slower.
    """
    while True:
        m = n
        for p in (2, 3, 5):
            while m % p == 0:
                m //= p
        if m == 1 and n % 2 == 0:
            return n
        n += 1


def _smooth(x: np.ndarray, n: int) -> np.ndarray:
    """Running mean over n values, edges held."""
    padded = np.concatenate([np.repeat(x[:1], n // 2), x, np.repeat(x[-1:], n - 1 - n // 2)])
    total = np.cumsum(np.concatenate([[0.0], padded]))
    return (total[n:] - total[:-n]) / n


def _voicing(clip: Clip, n_frames: int) -> np.ndarray:
    """Height of the autocorrelation's peak in the range of voices, per frame of 40 ms."""
    from .resample import resample

    x = resample(clip.samples, clip.rate, PITCH_HZ)
    hop, size = round(HOP_S * PITCH_HZ), round(0.040 * PITCH_HZ)
    padded = np.concatenate([np.zeros(size // 2, np.float32), x, np.zeros(size + hop, np.float32)])
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop][:n_frames]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * np.hanning(size).astype(np.float32)
    n_fft = 640
    spectrum = np.fft.rfft(frames, n_fft, axis=1)
    across = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, n_fft, axis=1)
    window = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(size), n_fft)) ** 2, n_fft)
    low, high = PITCH_HZ // PITCH_MAX_HZ, PITCH_HZ // PITCH_MIN_HZ
    ratio = across[:, low:high] / (across[:, :1] + 1e-7) * (window[0] / window[low:high])
    # noise has no place where the curve first falls, so a peak must stand after a dip to count
    dipped = np.minimum.accumulate(ratio, axis=1) < 0.5 * np.maximum(
        ratio.max(axis=1, keepdims=True), 0
    )
    peak = np.where(dipped, ratio, 0).max(axis=1)
    return np.pad(np.clip(peak, 0, 1), (0, n_frames - len(peak)))


def _speech(level_db: np.ndarray, voiced: np.ndarray) -> np.ndarray:
    low, high = np.percentile(level_db, 5), np.percentile(level_db, 97)
    # half way up from the noise when it is near; never more than 32 dB below the loud parts, where
    # only breath and room are left
    threshold = max(low + min(9.0, 0.45 * (high - low)), high - 32.0, -90.0)
    mask = level_db > threshold
    mask = _without_runs(mask, False, 15)  # stops and pauses inside a word
    return _without_runs(mask, True, 6)  # clicks


def _without_runs(mask: np.ndarray, value: bool, shorter_than: int) -> np.ndarray:
    """Flip inner runs of `value` that are too short to mean anything."""
    out = mask.copy()
    for start, end, is_on in runs(mask):
        if (
            is_on == value
            and end - start < shorter_than
            and (value or (start > 0 and end < len(mask)))
        ):
            out[start:end] = not value
    return out


def runs(mask: np.ndarray) -> list[tuple[int, int, bool]]:
    """[(start, end, value)] of equal neighbours."""
    edges = [0, *(np.flatnonzero(np.diff(mask.astype(np.int8))) + 1).tolist(), len(mask)]
    return [(a, b, bool(mask[a])) for a, b in pairwise(edges) if b > a]


def _noise(power: np.ndarray, level_db: np.ndarray, speech: np.ndarray) -> np.ndarray:
    """Mean power of the pauses where there are any, else what each bin falls to between the sounds
    of speech.
    """
    quiet = ~speech
    quiet[1:] &= ~speech[:-1]  # a frame beside speech holds the end of it
    quiet[:-1] &= ~speech[1:]
    if quiet.sum() >= 15:
        levels = level_db[quiet]
        # what lies far above the quietest pauses is breath, closures and the ends of words
        return power[quiet][levels <= np.percentile(levels, 10) + 6].mean(axis=0)
    return (
        np.percentile(power, 15, axis=0) / 0.16
    )  # the 15th of 100 of an exponential distribution is 0.16 of its mean
