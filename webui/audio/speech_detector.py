"""Does a clip hold speech at all?

Knows what tones, music and noise do that no voice does; what it is not sure of, it takes for a
voice.
"""

from __future__ import annotations

import numpy as np

from .spectrum import Spectrum

LOUD_DB = 25.0  # below the loud parts: what lies deeper says little
# Measured on 18 voices in rooms, noise of 10 dB and over the telephone: the richest quarter of
# their frames spreads over 16 bins or more, half of their loud frames or more are periodic, and
# music as loud as they are is steady in 0.76 of the frames at most.
MAX_TONE_BINS, MIN_PERIODIC, MUSIC_ALONE = 7.0, 0.12, 0.78
VOICED = 0.45


def lacks_speech(spectrum: Spectrum, music: float) -> bool:
    """Whether it sounds like pure tones, noise or music without a voice.

    Some solo instruments pass for a voice.

    music: `music_share` of the clip.
    """
    loud = spectrum.level_db > np.percentile(spectrum.level_db, 97) - LOUD_DB
    if float((spectrum.voiced[loud] > VOICED).mean()) < MIN_PERIODIC:
        return True
    if float(np.percentile(_spread(spectrum.power[loud]), 75)) < MAX_TONE_BINS:
        return True
    return music > MUSIC_ALONE


def _spread(power: np.ndarray) -> np.ndarray:
    """(frames,): over how many bins the power of a frame is spread, as the exponential of its
    entropy.
    """
    share = power / np.maximum(power.sum(axis=1, keepdims=True), 1e-12)
    return np.exp(-(share * np.log(share + 1e-12)).sum(axis=1))
