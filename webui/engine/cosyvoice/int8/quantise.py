"""Matrices as bytes and scales, by blocks along the inputs.

Knows numbers; blind to which layer they come from.
"""

from __future__ import annotations

import numpy as np

# Inputs that share a scale, of a weight's row and of an activation. Products of 64 are the same to
# the last bit for one row and for many; with 128 an id takes 2 ms less, but a rounding in one row's
# sums moves its next int8 codes, and other ids are drawn in company than alone.
BLOCK = 64
ZERO = 128  # the byte that means 0


def quantise(weight: np.ndarray, block: int = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """(out, in) floats -> bytes (out, blocks, block) uint8 and scales (out, blocks) fp32, the last
    block filled up with zeros.

    Off by half a scale at most, which is 1/254 of the block's largest value. Raises ValueError for
    values that are not finite.
    """
    if not np.isfinite(weight).all():
        raise ValueError("values that are not finite")
    rows, columns = weight.shape
    blocks = -(-columns // block)
    padded = np.zeros((rows, blocks * block), np.float32)
    padded[:, :columns] = weight
    padded = padded.reshape(rows, blocks, block)
    scales = np.abs(padded).max(-1) / 127
    scales[scales == 0] = 1
    np.divide(padded, scales[..., None], out=padded)
    np.rint(padded, out=padded)
    padded += ZERO
    return padded.astype(np.uint8), scales.astype(np.float32)


def restore(codes: np.ndarray, scales: np.ndarray, columns: int) -> np.ndarray:
    """What the codes stand for, (out, in) fp32."""
    rows = codes.shape[0]
    return ((codes.astype(np.float32) - ZERO) * scales[..., None]).reshape(rows, -1)[:, :columns]


def quantise_rows(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(out, in) floats -> bytes (in, out) uint8 and one scale per output, (out,) fp32: the form for
    many positions at once.

    Unsigned, with ZERO as 0: processors without VNNI add products of unsigned and signed bytes in
    pairs of 16 bits, which overflow.
    """
    scales = np.abs(weight).max(1) / 127
    scales[scales == 0] = 1
    codes = (np.rint(weight / scales[:, None]) + ZERO).astype(np.uint8)
    return np.ascontiguousarray(codes.T), scales.astype(np.float32)
