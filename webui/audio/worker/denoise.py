"""Noise reduction by spectral gating (the noisereduce package, numpy path).

Blind to files: samples in, samples out.
"""

import sys

import numpy as np
import scipy.signal  # noqa: F401  before the barrier below, which scipy does not expect

# noisereduce loads torch wherever torch is installed; that costs a second and 200 MB, and the path
# used here is numpy's
sys.modules["torch"] = None
from noisereduce import reduce_noise  # noqa: E402

del sys.modules["torch"]

PIECE_S, AROUND_S = 10.0, 1.5  # work in pieces: the gate holds some six spectrograms at once


def run(kind, numbers, payload):
    """kind: "stationary" or "varying". numbers: rate Hz, amount 0..1, count of noise samples.
    payload: float32 noise, then float32 sound.
    """
    rate, amount, n_noise = int(numbers[0]), float(numbers[1]), int(numbers[2])
    samples = np.frombuffer(payload, "<f4")
    noise, sound = samples[:n_noise], samples[n_noise:]
    n_fft = 1 << int(np.ceil(np.log2(0.04 * rate)))  # 43-64 ms, four steps a frame
    how = {
        "sr": rate,
        "prop_decrease": amount,
        "n_fft": n_fft,
        "chunk_size": None,
        "padding": n_fft,
        "time_mask_smooth_ms": 64,
    }
    if kind == "stationary":
        how |= {
            "stationary": True,
            "y_noise": noise if n_noise >= n_fft else None,
            "n_std_thresh_stationary": 1.2,
        }
    else:
        # the package's own threshold (2: three times the local mean) takes vowels for background in
        # speech without pauses
        how |= {"stationary": False, "thresh_n_mult_nonstationary": 1.0}
    out = np.empty_like(sound)
    piece, around = int(PIECE_S * rate), int(AROUND_S * rate)
    if kind == "stationary" and how["y_noise"] is None:
        how["y_noise"] = sound  # every piece is measured against the same noise
    for start in range(0, len(sound), piece):
        before = min(around, start)
        cleaned = reduce_noise(sound[start - before : start + piece + around], **how)
        out[start : start + piece] = cleaned[before : before + piece]
    return 0, rate, rate, 1, np.clip(np.nan_to_num(out), -1, 1).astype("<f4").tobytes()
