"""Convolutions over time as few multiplications: each block of inputs is transformed, multiplied
point by point and transformed back.

The transforms are a discrete Fourier transform whose complex products are three real ones each
(Karatsuba), or for three taps Winograd's F(4, 3) (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2015). Either gives a convolution's exact result but for rounding,
with 1.3 to 3.3 times fewer multiplications than the taps ask for; all of them are matrix products.
Rows are moments, columns channels, everything float32. One thread; the result does not depend on
what else the process does.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

_OUTPUTS = {
    7: 10,
    11: 14,
}  # per block, by taps: more of them cost fewer multiplications and more memory
# numbers: transformed blocks that are multiplied in one go, so that they stay in the cache
_AT_ONCE = 400_000


class Scratch:
    """Memory of intermediate results, for one thread: what it gives is valid until the same name is
    asked for again.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def take(self, name: str, *shape: int) -> np.ndarray:
        """float32 of that shape, holding anything finite."""
        n = int(np.prod(shape))
        if name not in self._arrays or self._arrays[name].size < n:
            self._arrays[name] = np.zeros(n, np.float32)
        return self._arrays[name][:n].reshape(shape)


class Convolution:
    """A kernel, transformed. Immutable; any number of streams may use it at once."""

    def __init__(self, kernel: np.ndarray, dilation: int = 1):
        """kernel: (out channels, in channels, taps), taps 3, 7 or 11; output row t reads input rows
        t, t + dilation, and so on.
        """
        n_out, n_in, self._n_taps = kernel.shape
        forward, taps, back = (
            _winograd() if self._n_taps == 3 else _fourier(_OUTPUTS[self._n_taps], self._n_taps)
        )
        self._forward, self._back = forward.astype(np.float32), back.astype(np.float32)
        # (points, in, out): one matrix for every point of the transform
        self._kernel = np.ascontiguousarray(
            np.tensordot(taps.astype(np.float32), kernel, (1, 2)).transpose(0, 2, 1)
        )
        self._dilation = dilation
        self.n_in, self.n_out = n_in, n_out
        self.reach = (self._n_taps - 1) * dilation  # rows that an output reads beyond its own

    def n_rows(self, n: int) -> int:
        """How many input rows `apply` wants for n outputs: whole blocks of them."""
        return (self._n_blocks(n) * len(self._back) + self._n_taps - 1) * self._dilation

    def _n_blocks(self, n: int) -> int:
        return -(-n // (self._dilation * len(self._back)))

    def apply(self, rows: np.ndarray, n: int, scratch: Scratch) -> np.ndarray:
        """rows: (n_rows(n), in), contiguous -> (n, out), in scratch.

        Rows beyond n + reach must be finite and change nothing.
        """
        n_points, n_outputs = len(self._forward), len(self._back)
        n_blocks, step = self._n_blocks(n), self._dilation
        out = scratch.take("convolved", n_blocks * n_outputs * step, self.n_out)
        # A block begins at every row of the first `dilation` rows after each `n_outputs *
        # dilation`, and takes every `dilation`-th row.
        input_blocks = _blocks(rows, n_blocks, step, n_outputs, self._forward.shape[1])
        output_blocks = _blocks(out, n_blocks, step, n_outputs, n_outputs)
        at_once = max(_AT_ONCE // (step * n_points * self.n_in), 1)
        for i in range(0, n_blocks, at_once):
            m = min(at_once, n_blocks - i)
            points = scratch.take("points", m, step, n_points, self.n_in)
            np.matmul(self._forward, input_blocks[i : i + m], out=points)
            products = scratch.take("products", m, step, n_points, self.n_out)
            np.matmul(
                points.reshape(m * step, n_points, self.n_in).transpose(1, 0, 2),
                self._kernel,
                out=products.reshape(m * step, n_points, self.n_out).transpose(1, 0, 2),
            )
            np.matmul(self._back, products, out=output_blocks[i : i + m])
        return out[:n]


def _blocks(rows: np.ndarray, n_blocks: int, step: int, stride: int, length: int) -> np.ndarray:
    """View (n_blocks, step, length, channels): block b, phase p begins at row b * stride * step + p
    and goes on in steps of `step`.
    """
    row = rows.strides[0]
    return as_strided(
        rows,
        (n_blocks, step, length, rows.shape[1]),
        (stride * step * row, row, step * row, rows.strides[1]),
    )


@cache
def _fourier(n_outputs: int, n_taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices (points, inputs), (points, taps), (outputs, points): back @ ((forward @ x) * (taps @
    k)) is the convolution.

    With X = a + ib of the inputs and c + id of the taps, conjugated, the real part of the product
    is c(a + b) - b(c + d) and the imaginary part c(a + b) + a(d - c).
    """
    size = n_outputs + n_taps - 1
    if size % 2:
        raise ValueError("the transform must have an even length")
    at, tap, out = np.arange(size), np.arange(n_taps), np.arange(n_outputs)
    forward = [np.ones(size), (-1.0) ** at]
    taps = [np.ones(n_taps), (-1.0) ** tap]
    back = [np.ones(n_outputs) / size, (-1.0) ** out / size]
    for turn in 2 * np.pi * np.arange(1, size // 2) / size:
        a, b = np.cos(turn * at), -np.sin(turn * at)
        c, d = np.cos(turn * tap), np.sin(turn * tap)
        cosine, sine = 2 / size * np.cos(turn * out), 2 / size * np.sin(turn * out)
        forward += [a + b, a, b]
        taps += [c, d - c, c + d]
        back += [cosine - sine, -sine, -cosine]
    return np.array(forward), np.array(taps), np.array(back).T


@cache
def _winograd() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for four outputs of three taps: the points 0, 1, -1, 2, -2 and infinity."""
    forward = [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
    taps = [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
    back = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
    return np.array(forward, float), np.array(taps), np.array(back, float)
