"""What layers that look left need of a stream's past: the last columns that each of them was given.

Blind to what the layers mean.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Tails:
    """One per stream. `lead` is for layers without padding of their own."""

    def __init__(self):
        self._tails: dict[nn.Conv1d, torch.Tensor] = {}

    def lead(self, conv: nn.Conv1d, x: torch.Tensor) -> torch.Tensor:
        """x (1, channels, n), the layer's next columns, n of 1 or more, with those in front that
        its next output looks back on: zeros at the start. A layer with strides is given a first
        column of its own there, before the first of its stride.
        """
        width = (conv.kernel_size[0] - 1) * conv.dilation[0] + 1 - conv.stride[0]
        if not width:
            return x
        tail = self._tails.get(conv)
        x = F.pad(x, (width - (conv.stride[0] > 1), 0)) if tail is None else torch.cat([tail, x], 2)
        self._tails[conv] = x[..., -width:].clone()
        return x
