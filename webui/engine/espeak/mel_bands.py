"""The grids that analysis, mapping and synthesis share: rates, frames, mel bands and the matrices
between them. Numbers only.

Source = what eSpeak says (22050 Hz); target = what is heard (24000 Hz). Both use 512-point spectra
(257 bins), so no resampling is
needed: the frequency warp carries one grid into the other. Logs are natural logs of power (4.343 dB
  per unit).
"""

from __future__ import annotations

import numpy as np

SOURCE_HZ = 22050
RATE_HZ = 24000
FFT = 512
BINS = FFT // 2 + 1
HOP_S = 0.008
BANDS = 48
LOG_FLOOR = 1e-12
DB = 10.0 / np.log(10.0)  # dB per natural log unit of power

target_hz = np.linspace(0.0, RATE_HZ / 2, BINS)
source_hz = np.linspace(0.0, SOURCE_HZ / 2, BINS)


def mel(hz: np.ndarray | float) -> np.ndarray:
    return 1127.0 * np.log1p(np.asarray(hz, dtype=np.float64) / 700.0)


band_mel = np.linspace(mel(60.0), mel(11500.0), BANDS)
band_hz = 700.0 * np.expm1(band_mel / 1127.0)


def _band_matrix() -> np.ndarray:
    """(257, 48): mean power around each band centre.

    Integrated on a finer grid, since low bands are as narrow as one bin.
    """
    fine_hz = np.linspace(0.0, RATE_HZ / 2, 8 * (BINS - 1) + 1)
    step = band_mel[1] - band_mel[0]
    triangles = np.clip(1.0 - np.abs(mel(fine_hz)[:, None] - band_mel[None, :]) / step, 0.0, None)
    triangles /= triangles.sum(axis=0)
    position = fine_hz / (RATE_HZ / 2) * (BINS - 1)
    low = np.minimum(position.astype(int), BINS - 2)
    to_fine = np.zeros((len(fine_hz), BINS))
    rows = np.arange(len(fine_hz))
    to_fine[rows, low] += 1.0 - (position - low)
    to_fine[rows, low + 1] += position - low
    return (to_fine.T @ triangles).astype(np.float32)


def _spread_matrix() -> np.ndarray:
    """(48, 257): band values to bins, linear in mel, held at both ends."""
    position = np.clip(
        (mel(target_hz) - band_mel[0]) / (band_mel[1] - band_mel[0]), 0.0, BANDS - 1.0
    )
    low = np.minimum(position.astype(int), BANDS - 2)
    out = np.zeros((BANDS, BINS))
    cols = np.arange(BINS)
    out[low, cols] += 1.0 - (position - low)
    out[low + 1, cols] += position - low
    return out.astype(np.float32)


def _dct() -> np.ndarray:
    """(48, 48) orthonormal DCT-II; column k gives coefficient k: cepstrum = bands @ DCT."""
    n = np.arange(BANDS)
    basis = np.cos(np.pi * (n[:, None] + 0.5) * n[None, :] / BANDS) * np.sqrt(2.0 / BANDS)
    basis[:, 0] /= np.sqrt(2.0)
    return basis.astype(np.float32)


def band_blur(sigma_bands: float) -> np.ndarray:
    """(48, 48) Gaussian across bands with normalised edges: blurred = x @ matrix."""
    n = np.arange(BANDS)
    g = np.exp(-0.5 * ((n[:, None] - n[None, :]) / sigma_bands) ** 2)
    return (g / g.sum(axis=0)).astype(np.float32)


TO_BANDS = _band_matrix()
TO_BINS = _spread_matrix()
DCT = _dct()


def warp_columns(stretch: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns and weights that read source bins at f / stretch for every target bin: (low (257,),
    high (257,), fraction (257,)).
    """
    knee = 0.82 * SOURCE_HZ / 2
    nodes_target = [0.0, knee * stretch, RATE_HZ / 2]
    nodes_source = [0.0, knee, SOURCE_HZ / 2]
    position = np.interp(target_hz, nodes_target, nodes_source) / (SOURCE_HZ / 2) * (BINS - 1)
    low = np.minimum(position.astype(np.int64), BINS - 2)
    return low, low + 1, (position - low).astype(np.float32)


def warp(log_power: np.ndarray, columns: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """log_power (frames, 257) on the source grid -> (frames, 257) on the target grid."""
    low, high, fraction = columns
    a = log_power[:, low]
    return a + fraction * (log_power[:, high] - a)


def bands_of(log_power: np.ndarray) -> np.ndarray:
    """(frames, 257) log power on the target grid -> (frames, 48) log band power."""
    return np.log(np.exp(log_power) @ TO_BANDS + LOG_FLOOR)


def energy_of(bands: np.ndarray) -> np.ndarray:
    """(frames, 48) log bands -> (frames, 1) log of the mean band power: loudness of the frame."""
    return np.log(np.exp(bands).mean(axis=1, keepdims=True) + LOG_FLOOR)
