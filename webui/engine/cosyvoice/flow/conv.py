"""Convolutions that look left only, in (batch, time, channels), and the few past rows they need
from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from ..mkldnn_linear import PrepackedLinear, fits


class ConvCache:
    """The last input rows of every causal convolution, by slot.

    Tensors are replaced, never written, so copies may share them.
    """

    def __init__(self, rows: dict[int, torch.Tensor] | None = None):
        self.rows = dict(rows or {})

    def copy(self) -> ConvCache:
        return ConvCache(self.rows)

    def mark(self) -> dict[int, torch.Tensor]:
        """Where it stands, for `back_to`: what a call that failed half-way has added is
        forgotten.
        """
        return self.rows.copy()

    def back_to(self, mark: dict[int, torch.Tensor]) -> None:
        self.rows = mark.copy()

    def row(self, index: int) -> ConvCache:
        return ConvCache({slot: rows[index : index + 1] for slot, rows in self.rows.items()})

    def join(self, parts: Sequence[ConvCache]) -> None:
        """The rows of all parts, in order, in place of what was here."""
        self.rows = {slot: torch.cat([part.rows[slot] for part in parts]) for slot in parts[0].rows}

    def parts(self, count: int) -> list[ConvCache]:
        """As many pasts of equally many rows."""
        split = {slot: rows.chunk(count) for slot, rows in self.rows.items()}
        return [ConvCache({slot: rows[i] for slot, rows in split.items()}) for i in range(count)]

    def lead(self, slot: int, x: torch.Tensor, width: int) -> torch.Tensor:
        """x (batch, n, channels) with `width` earlier rows in front (zeros at the very start); the
        last rows are kept.
        """
        before = self.rows.get(slot)
        x = F.pad(x, (0, 0, width, 0)) if before is None else torch.cat([before, x], 1)
        self.rows[slot] = x[:, -width:].clone()
        return x


class TimeConv(nn.Module):
    """Convolution over time without padding: (batch, n + kernel - 1, c_in) -> (batch, n, c_out).

    After `pack` the kernel is one matrix over windows of neighbouring rows, so no transposes are
    needed around it.
    """

    def __init__(self, c_in: int, c_out: int, kernel: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c_out, c_in, kernel))
        self.bias = nn.Parameter(torch.empty(c_out))
        self.kernel = kernel
        self._arranged: PrepackedLinear | None = None
        self.slot = -1  # its place in Past; given by the model that owns it

    def pack(self) -> None:
        matrix = (
            self.weight.detach().permute(0, 2, 1).reshape(self.weight.shape[0], -1).contiguous()
        )
        del self.weight
        self.register_buffer("matrix", matrix, persistent=False)
        if fits(matrix):
            self._arranged, self.matrix = (
                PrepackedLinear(matrix, self.bias.detach()),
                matrix.to("meta"),
            )

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.matrix, self.bias) if self._arranged is None else self._arranged(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kernel == 1:
            return self._product(x)
        x = x.contiguous()
        batch, rows, channels = x.shape
        # rows are contiguous, so `kernel` neighbours are one longer row: a view, not a copy
        windows = x.as_strided(
            (batch, rows - self.kernel + 1, self.kernel * channels), (rows * channels, channels, 1)
        )
        # overlapping rows of several requests are no one matrix: copied they are, and one product
        # takes half the time of `batch`
        if batch > 1:
            return self._product(windows.reshape(-1, windows.shape[2])).view(
                batch, -1, len(self.bias)
            )
        return self._product(windows)

    def causal(self, x: torch.Tensor, past: ConvCache) -> torch.Tensor:
        return self(past.lead(self.slot, x, self.kernel - 1))
