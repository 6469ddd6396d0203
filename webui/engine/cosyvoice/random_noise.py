"""Random numbers that depend on a seed and a position alone, so that a stream equals a whole."""

from __future__ import annotations

import numpy as np
import torch


def random_numbers(seed: int, counter: int) -> np.random.Generator:
    """Random numbers that depend on (seed, counter) alone.

    Counters below 2**48 are the excitation's noise.
    """
    return np.random.Generator(
        np.random.Philox(key=np.array([seed & (2**64 - 1), counter], np.uint64))
    )


def noise_at(
    seed: int,
    start: int,
    count: int,
    width: int,
    size: int,
    first: int = 0,
) -> torch.Tensor:
    """Standard normal noise of the samples start..start+count of the utterance, (count, width)
    float32. Same seed, same sample: same value, however the utterance is cut. Drawn in blocks of
    `size` from a counter-based generator keyed by (seed, first + block).
    """
    blocks = range(start // size, -(-(start + count) // size))
    parts = [
        random_numbers(seed, first + block).standard_normal((size, width), np.float32)
        for block in blocks
    ]
    offset = start - (blocks.start * size)
    return (
        torch.from_numpy(np.concatenate(parts)[offset : offset + count])
        if parts
        else torch.zeros(0, width)
    )
