"""Where another speaker takes over in a clip.

Looks at pauses only, and hears the colour of a voice, not its words or its pitch.

The voiced frames of some seconds on both sides are compared as two Gaussians of cepstra: by the
Bayesian information criterion (Chen and Gopalakrishnan, "Speaker, environment and channel change
detection", 1998), and by how far their means lie apart, for one voice fills both sides with
different sounds.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import dct

from .spectrum import HOP_S, Spectrum, runs

BANDS, LOW_HZ, HIGH_HZ = 24, 100.0, 5000.0
CEPSTRA = 16
PAUSE_FRAMES = 10
SIDE_FRAMES = round(5.0 / HOP_S)  # at most, of voiced ones on each side
LEAST_FRAMES = round(1.0 / HOP_S)  # at least: shorter words may be anybody's
VOICED = 0.45
# Of 67 pauses within 18 voices the highest criterion was 1.4 and the widest distance 1.4; between
# two voices the lowest were 1.7 and 1.4. Where loud noise sets in amid a clip, its voice may be
# taken for two.
MIN_CRITERION, MIN_DISTANCE = 1.8, 1.9
RIDGE = 0.01  # of the covariances


def speaker_changes(spectrum: Spectrum) -> tuple[float, ...]:
    """Return the seconds at which another speaker takes over, in order."""
    bands = spectrum.power @ _mel_filters(spectrum.hz)
    voiced = spectrum.speech & (spectrum.voiced > VOICED)
    pauses = [
        (start, end)
        for start, end, is_on in runs(spectrum.speech)
        if not is_on and end - start >= PAUSE_FRAMES
    ]
    change_times_s: list[float] = []
    parts = [(0, len(voiced))]  # in frames; each is parted where its voices differ most
    while parts:
        begin, end = parts.pop()
        best = (0.0, 0, 0)
        for start, stop in pauses:
            left = begin + np.flatnonzero(voiced[begin:start])[-SIDE_FRAMES:]
            right = stop + np.flatnonzero(voiced[stop:end])[:SIDE_FRAMES]
            if min(len(left), len(right)) < LEAST_FRAMES:
                continue
            criterion, distance = compare(bands[left], bands[right])
            if criterion > MIN_CRITERION and distance > MIN_DISTANCE:
                best = max(best, (criterion, start, stop))
        if best[0]:
            _, start, stop = best
            change_times_s.append(round((start + stop) / 2 * HOP_S, 2))
            parts += [(begin, start), (stop, end)]
    return tuple(sorted(change_times_s))


def compare(left: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Return the gain of two Gaussians over one in units of its penalty, and the Mahalanobis
    distance of the means.

    left, right: power (frames, BANDS) of voiced frames.
    """
    # what the background of one side hides is hidden on the other too
    hidden = np.maximum(_background(left), _background(right))
    a, b = (
        dct(np.log(side + hidden + 1e-9), axis=1, norm="ortho")[:, 1 : CEPSTRA + 1]
        for side in (left, right)
    )
    n_a, n_b, n = len(a), len(b), len(a) + len(b)
    cov_a, cov_b, cov = (_covariance(x) for x in (a, b, np.vstack([a, b])))
    gain = 0.5 * (n * _log_det(cov) - n_a * _log_det(cov_a) - n_b * _log_det(cov_b))
    penalty = 0.5 * (CEPSTRA + CEPSTRA * (CEPSTRA + 1) / 2) * np.log(n)
    shift = a.mean(axis=0) - b.mean(axis=0)
    within = (n_a * cov_a + n_b * cov_b) / n
    return float(gain / penalty), float(np.sqrt(shift @ np.linalg.solve(within, shift)))


def _background(bands: np.ndarray) -> np.ndarray:
    return 2 * np.percentile(bands, 5, axis=0)


def _covariance(x: np.ndarray) -> np.ndarray:
    return np.cov(x.T) + RIDGE * np.eye(x.shape[1])


def _log_det(x: np.ndarray) -> float:
    return float(np.linalg.slogdet(x)[1])


def _mel_filters(hz: np.ndarray) -> np.ndarray:
    """(bins, BANDS): triangles, evenly spaced in mel, each summing to one."""
    top = 2595 * np.log10(1 + np.array([LOW_HZ, HIGH_HZ]) / 700)
    edges = 700 * (10 ** (np.linspace(*top, BANDS + 2) / 2595) - 1)
    rising = (hz[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hz[:, None]) / (edges[2:] - edges[1:-1])
    filters = np.clip(np.minimum(rising, falling), 0, None)
    return filters / np.maximum(filters.sum(axis=0), 1e-9)
