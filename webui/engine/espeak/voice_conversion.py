"""Bends analysed frames of the base voice into the reference's: the per-frame half of the engine.

Batched over the frames of a block.
"""

from __future__ import annotations

import numpy as np

from .mel_bands import DCT, TO_BINS, band_blur, bands_of, energy_of, target_hz, warp, warp_columns
from .voice_mapping import Mapping, blend_high, exemplar_terms, normalised_exemplars

CONTEXT = 4  # frames on both sides that the moving averages need
PULL, PULL_LIMIT, SOFTNESS = 0.4, 3.0, 1.0
_blur = band_blur(0.7)
_before = np.zeros((48, 48), np.float32)
for _k in range(5, 48):
    _before[_k - 5 : _k, _k] = 0.2  # mean of the five bands below


def moving_mean(x: np.ndarray, frames: int) -> np.ndarray:
    """(m, k) -> mean over `frames` (odd) rows around each row, edges repeated."""
    half = frames // 2
    padded = np.concatenate((np.repeat(x[:1], half, 0), x, np.repeat(x[-1:], half, 0)))
    out = padded[: len(x)].copy()
    for i in range(1, frames):
        out += padded[i : i + len(x)]
    return out * np.float32(1.0 / frames)


def without_slips(f0: np.ndarray) -> np.ndarray:
    """Median of three where all three frames have a pitch: a single octave slip is gone."""
    out = f0.copy()
    a, b, c = f0[:-2], f0[1:-1], f0[2:]
    middle = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    out[1:-1] = np.where((a > 0) & (c > 0) & (b > 0), middle, b)
    return out


class Converter:
    """One voice in one language. exemplars: the reference's voiced frames (r, 48)."""

    def __init__(self, mapping: Mapping, exemplars: np.ndarray):
        self.mapping = mapping
        self._columns = warp_columns(mapping.stretch)
        self._exemplars = exemplars.astype(np.float32)
        keys = normalised_exemplars(self._exemplars)
        self._keys = np.ascontiguousarray(2.0 / SOFTNESS * keys.T)
        self._key_power = (keys * keys).sum(axis=1) / SOFTNESS
        self._high = blend_high(mapping.stretch)
        self._spread = (mapping.spread[:, None] * DCT.T).astype(np.float32)

    def frames(
        self, log_power: np.ndarray, f0: np.ndarray, tilt: np.ndarray | None = None
    ) -> np.ndarray:
        """log_power (m, 257) of the source with its f0 (m,) -> log power (m, 257) on the target
        grid, loudness kept.
        """
        m = self.mapping
        warped = warp(log_power, self._columns)
        bands = bands_of(warped)
        energy = energy_of(bands)
        level = bands - energy
        voiced = (f0 > 0).astype(np.float32)[:, None]
        weight = moving_mean(voiced, 3)
        new = level + m.shift_unvoiced + weight * (m.shift_voiced - m.shift_unvoiced)
        new += weight * ((level @ DCT - m.centre) @ self._spread)
        new += PULL * self._pull(level, new, voiced)
        mean = m.high_unvoiced + weight * (m.high_voiced - m.high_unvoiced)
        above = mean + 0.6 * ((new - mean) @ _before)
        new += self._high * (above - new)
        if tilt is not None:
            new += tilt
        gain = energy - energy_of(new) + (1.0 - weight) * np.float32(m.unvoiced_gain)
        return warped + (new + gain - bands) @ TO_BINS

    def _pull(self, level: np.ndarray, new: np.ndarray, voiced: np.ndarray) -> np.ndarray:
        """What is missing towards the reference frames most like this one, smoothed."""
        m = self.mapping
        query = (exemplar_terms(level) - m.exemplar_centre) * m.exemplar_scale
        closeness = query @ self._keys
        closeness -= self._key_power
        closeness -= closeness.max(axis=1, keepdims=True)
        weights = np.exp(closeness, out=closeness)
        missing = weights @ self._exemplars
        missing /= weights.sum(axis=1, keepdims=True)
        missing -= new
        missing *= voiced
        return np.clip(moving_mean(missing, 5) @ _blur, -PULL_LIMIT, PULL_LIMIT)

    def pitch(self, f0: np.ndarray, shift: float = 0.0, widen: float = 1.0) -> np.ndarray:
        """Source pitch (m,), 0 = unvoiced -> reference pitch in Hz, filled in between. shift in ln,
        widen = factor on the range.
        """
        m = self.mapping
        voiced = np.flatnonzero(f0 > 0)
        if not len(voiced):
            return np.full(len(f0), np.exp(m.log_f0 + shift), np.float32)
        log = (np.log(without_slips(f0)[voiced]) - m.log_f0_source) * (
            m.log_f0_factor * widen
        ) + m.log_f0
        log = (
            np.clip(log, m.log_f0_low - 0.15 * (widen > 1), m.log_f0_high + 0.15 * (widen > 1))
            + shift
        )
        return np.exp(np.interp(np.arange(len(f0)), voiced, log)).astype(np.float32)


def tilt_bands(db_per_octave: float, low_cut_db: float = 0.0) -> np.ndarray:
    """(48,) ln power: a straight tilt around 1 kHz, and optionally a cut below 400 Hz."""
    from .mel_bands import DB, band_hz

    tilt = db_per_octave * np.log2(band_hz / 1000.0) / DB
    return (tilt - np.where(band_hz < 400.0, low_cut_db, 0.0) / DB).astype(np.float32)


__all__ = ["CONTEXT", "Converter", "moving_mean", "target_hz", "tilt_bands"]
