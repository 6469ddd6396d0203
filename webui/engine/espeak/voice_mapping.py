"""How to bend the base voice towards one reference: profile x base-voice statistics -> Mapping.
numpy only; blind to text and time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .mel_bands import (
    BANDS,
    BINS,
    DB,
    DCT,
    RATE_HZ,
    SOURCE_HZ,
    band_blur,
    band_hz,
    bands_of,
    energy_of,
    warp,
    warp_columns,
)

BASE_WPM = 166
EXEMPLAR_TERMS = 17
EXEMPLAR_WEIGHT = (1.0 / np.sqrt(1.0 + np.arange(1, EXEMPLAR_TERMS + 1) / 6.0)).astype(np.float32)
VARIANCE_TERMS = 24
# From 5500 the consonants of dark references are lost (word error +.26 instead of +.17 for the
# worst), from 6500 two bright ones are no longer told apart.
HIGH_HZ = 6000.0
# ln power. What remains of a hiss must still tell s from f: references without one would otherwise
# take 17 dB off it.
MOST_SHIFT, MOST_SHIFT_UNVOICED = 5.0, 2.5
# up to 1.04 the distances to bright references are a little smaller, but every second word is lost
# (word error .55 instead of .33)
STRETCHES = np.arange(0.90, 0.9601, 0.02)


@dataclass(frozen=True)
class Profile:
    """What was heard in a reference. Band arrays are log power minus frame energy."""

    log_f0: float  # median of ln F0
    log_f0_sd: float
    log_f0_low: float  # 2nd and 98th percentile
    log_f0_high: float
    voiced: np.ndarray  # (r, 48) voiced frames, sub-sampled
    mean_voiced: np.ndarray  # (48,)
    mean_unvoiced: np.ndarray  # (48,)
    breathiness: np.ndarray  # (257,) aperiodicity on the target grid
    unvoiced_gap: float  # ln power, median unvoiced minus median voiced energy
    syllables_per_s: float
    active_s: float
    rms: float  # over active frames
    nyquist_hz: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Base:
    """The same for the base voice of one language, from its stock text; spectra stay on the source
    grid, to be warped.
    """

    log_f0: float
    log_f0_sd: float
    voiced: np.ndarray  # (m, 257) log power
    unvoiced: np.ndarray  # (k, 257)
    unvoiced_gap: float
    syllables_per_s: float


@dataclass(frozen=True)
class Mapping:
    """Tables the speaking side applies to every frame."""

    stretch: float
    shift_voiced: np.ndarray  # (48,) added to log bands
    shift_unvoiced: np.ndarray
    centre: np.ndarray  # (48,) cepstral mean of the warped stock, voiced
    spread: np.ndarray  # (48,) factor - 1 on deviations from it
    exemplar_centre: np.ndarray  # (17,) normalisation of the source
    exemplar_scale: np.ndarray  # (17,)
    high_voiced: np.ndarray  # (48,) where the source has little to say: the reference's mean bands
    high_unvoiced: np.ndarray
    log_f0_source: float
    log_sd_source: float
    log_f0_factor: float
    log_f0: float
    log_f0_low: float
    log_f0_high: float
    unvoiced_gain: float  # ln power
    wpm: float
    gain: float


def blend_high(stretch: float) -> np.ndarray:
    """(48,) share of the reference's own mean: 0 below about 6 kHz, 1 above, over 4 bands."""
    edge = HIGH_HZ * float(np.clip(stretch, 0.9, 1.15))
    at = np.interp(edge, band_hz, np.arange(BANDS))
    return np.clip((np.arange(BANDS) - at) / 4.0 + 0.5, 0.0, 1.0).astype(np.float32)


def exemplar_terms(bands: np.ndarray) -> np.ndarray:
    return (bands @ DCT)[:, 1 : EXEMPLAR_TERMS + 1]


def normalised_exemplars(voiced: np.ndarray) -> np.ndarray:
    """(r, 48) reference frames -> (r, 17), by the reference's own mean and spread, weighted."""
    terms = exemplar_terms(voiced)
    return (terms - terms.mean(axis=0)) / (terms.std(axis=0) + 1e-3) * EXEMPLAR_WEIGHT


def _thin(x: np.ndarray, n: int) -> np.ndarray:
    return x[np.linspace(0, len(x) - 1, min(n, len(x))).astype(int)]


def _nearest(a: np.ndarray, b: np.ndarray) -> float:
    """Mean distance of each row of a to its nearest row of b."""
    d = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2 * a @ b.T
    return float(np.sqrt(np.maximum(d.min(axis=1), 0.0)).mean())


def choose_stretch(profile: Profile, base: Base) -> float:
    prior = float(np.clip((np.exp(profile.log_f0) / 115.0) ** 0.25, 0.85, 1.32))
    reference = (_thin(profile.voiced, 200) @ DCT)[:, 1:16]
    reference = reference - reference.mean(axis=0)
    stock = _thin(base.voiced, 200)
    costs = []
    for a in STRETCHES:
        bands = bands_of(warp(stock, warp_columns(a)))
        terms = (bands @ DCT)[:, 1:16]
        terms = terms - terms.mean(axis=0)
        pull = 0.45 * (np.log(a / prior) / 0.15) ** 2
        costs.append(_nearest(reference, terms) + 0.5 * _nearest(terms, reference) + pull)
    return float(STRETCHES[int(np.argmin(costs))])


def _level(bands: np.ndarray) -> np.ndarray:
    return bands - energy_of(bands)


def _rate(profile: Profile, base: Base, tempo: float | None) -> float:
    """Counting syllables is a weak measure across languages, hence the power; the tempo of a known
    transcript needs none.
    """
    if tempo is None:
        tempo = (
            (profile.syllables_per_s / base.syllables_per_s) ** 0.7
            if profile.syllables_per_s > 0
            else 1.0
        )
    return float(np.clip(tempo, 0.82, 1.15))


def map_voice(profile: Profile, base: Base, tempo: float | None = None) -> Mapping:
    """The tables, with gain 1; the caller measures and sets the gain. tempo: of the reference over
    the base voice, where known.
    """
    stretch = choose_stretch(profile, base)
    columns = warp_columns(stretch)
    voiced = _level(bands_of(warp(base.voiced, columns)))
    unvoiced = _level(bands_of(warp(base.unvoiced, columns)))
    trusted = int(np.searchsorted(band_hz, 0.93 * profile.nyquist_hz)) - 1
    blur = band_blur(1.2)

    def shift(target: np.ndarray, own: np.ndarray, most: float) -> np.ndarray:
        d = (target - own) @ blur
        if trusted < BANDS - 1:
            d[trusted + 1 :] = d[trusted]
        return np.clip(d, -most, most).astype(np.float32)

    def hold_high_bands(mean: np.ndarray, own: np.ndarray) -> np.ndarray:
        out = mean.copy()
        if trusted < BANDS - 1:
            out[trusted + 1 :] = own[trusted + 1 :] + np.clip(
                mean[trusted] - own[trusted], -5.0, 5.0
            )
        return out.astype(np.float32)

    shift_v = shift(profile.mean_voiced, voiced.mean(axis=0), MOST_SHIFT)
    shift_u = shift(profile.mean_unvoiced, unvoiced.mean(axis=0), MOST_SHIFT_UNVOICED)
    terms = voiced @ DCT
    ratio = np.clip((profile.voiced @ DCT).std(axis=0) / (terms.std(axis=0) + 1e-3), 0.8, 1.35)
    ratio[0] = 1.0
    ratio[VARIANCE_TERMS:] = 1.0
    moved = exemplar_terms(voiced)
    gap = (profile.unvoiced_gap - base.unvoiced_gap) * DB
    return Mapping(
        stretch=stretch, shift_voiced=shift_v, shift_unvoiced=shift_u,
        centre=terms.mean(axis=0).astype(np.float32), spread=(ratio - 1.0).astype(np.float32),
        exemplar_centre=moved.mean(axis=0).astype(np.float32),
        exemplar_scale=(EXEMPLAR_WEIGHT / (moved.std(axis=0) + 1e-3)).astype(np.float32),
        high_voiced=hold_high_bands(profile.mean_voiced, voiced.mean(axis=0)),
        high_unvoiced=hold_high_bands(profile.mean_unvoiced, unvoiced.mean(axis=0)),
        log_f0_source=base.log_f0, log_sd_source=base.log_f0_sd,
        log_f0_factor=float(np.clip(profile.log_f0_sd / max(base.log_f0_sd, 1e-3), 0.6, 2.2)),
        log_f0=profile.log_f0, log_f0_low=profile.log_f0_low - 0.2,
        log_f0_high=profile.log_f0_high + 0.2,
        unvoiced_gain=float(np.clip(0.6 * gap, -8.0, 6.0) / DB),
        wpm=BASE_WPM * _rate(profile, base, tempo), gain=1.0,
    )  # fmt: skip


def neutral(base: Base) -> tuple[Profile, Mapping]:
    """The base voice as it is: for warm-up and for measuring what the conversion adds."""
    voiced, unvoiced = (
        _level(bands_of(warp(x, warp_columns(1.0)))) for x in (base.voiced, base.unvoiced)
    )
    profile = Profile(
        base.log_f0, base.log_f0_sd, base.log_f0 - 0.5, base.log_f0 + 0.5, _thin(voiced, 200),
        voiced.mean(axis=0), unvoiced.mean(axis=0),
        np.linspace(0.0, 0.5, BINS).astype(np.float32), base.unvoiced_gap, base.syllables_per_s,
        10.0, 0.1, SOURCE_HZ / 2,
    )  # fmt: skip
    return profile, map_voice(profile, base)


__all__ = [
    "BASE_WPM",
    "RATE_HZ",
    "Base",
    "Mapping",
    "Profile",
    "blend_high",
    "exemplar_terms",
    "map_voice",
    "neutral",
    "normalised_exemplars",
]
