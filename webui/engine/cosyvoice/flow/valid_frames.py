"""Which positions of a call are real, where calls of several lengths share one shape: what is
behind them is nothing to them, as if it were not there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AllFrames:
    """Every position is."""

    def only(self, x: Tensor) -> Tensor:
        """x (rows, n, channels): zeros in place of what is not real, for layers that look
        around.
        """
        return x

    def norm(self, layer: nn.GroupNorm, x: Tensor) -> Tensor:
        """x (rows, n, channels): of groups of channels over all real positions."""
        return layer(x.mT).mT

    def hidden(self, x: Tensor) -> Tensor | None:
        """Additive mask (rows, 1, 1, n) of what attention may not see."""
        return None


ALL = AllFrames()


class FirstFrames(AllFrames):
    """The first `counts` (rows,) of `length`; and those at half the rate, rounded up, where
    `length` is even.
    """

    def __init__(self, counts: Tensor, length: int):
        is_real = torch.arange(length, device=counts.device) < counts[:, None]
        self._is_real = {length: is_real[..., None], length // 2: is_real[:, ::2, None]}

    def only(self, x: Tensor) -> Tensor:
        return x * self._is_real[x.shape[1]]

    def norm(self, layer: nn.GroupNorm, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(
            2, (layer.num_groups, -1)
        )
        is_real = self._is_real[x.shape[1]][..., None]
        count = is_real.sum(1, keepdim=True) * wide.shape[3]
        centred = wide - (wide * is_real).sum((1, 3), keepdim=True) / count
        spread = (centred.square() * is_real).sum((1, 3), keepdim=True) / count
        return ((centred * (spread + layer.eps).rsqrt()).flatten(2) * layer.weight + layer.bias).to(
            x.dtype
        )

    def hidden(self, x: Tensor) -> Tensor:
        is_real = self._is_real[x.shape[1]][:, None, None, :, 0]
        return torch.zeros(is_real.shape, dtype=x.dtype, device=x.device).masked_fill_(
            ~is_real, -torch.inf
        )
