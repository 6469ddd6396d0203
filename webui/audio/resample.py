"""Another sampling rate for the same sound."""

from __future__ import annotations

import numpy as np
import soxr

from .wav import from_s16, to_s16


def resample(x: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """float32 (n,) at `from_hz` to float32 at `to_hz`, band limited, without shift in time."""
    x = np.ascontiguousarray(x, np.float32)
    return (
        x
        if from_hz == to_hz or not len(x)
        else soxr.resample(x, from_hz, to_hz, quality="HQ").astype(np.float32, copy=False)
    )


class Resampler:
    """The same for a sound that is still being made, s16le to s16le: what comes out does not depend
    on the pieces it came in.
    """

    def __init__(self, from_hz: int, to_hz: int):
        self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="HQ")

    def push(self, pcm: bytes) -> bytes:
        """Whole samples. What is ready of them."""
        return to_s16(self._stream.resample_chunk(from_s16(pcm)))

    def flush(self) -> bytes:
        """The rest; there is no more to come."""
        return to_s16(self._stream.resample_chunk(np.zeros(0, np.float32), last=True))
