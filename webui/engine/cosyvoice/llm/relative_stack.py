"""Layers with relative attention that look back only, for several requests at once, each behind a
past of its own length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..dims_v1 import StackDims
from ..relative_attention import TILE, Embed, Layer, RelativeAttention
from .kv_cache import TorchKVCache


class CausalAttention(RelativeAttention):
    """Distances below 0 are never looked at, so its table has none, and it grows by whole tiles for
    as long as anybody speaks.
    """

    def pack(self) -> None:
        super().pack()
        self.table = self.rows(TILE, 0)

    def reach(self, total: int) -> None:
        """Room in the table for `total` positions."""
        have = self.table.shape[1]
        if have < total:
            more = self.rows(-(-total // TILE) * TILE, have)
            self.table = torch.cat([more, self.table], 1)

    def positions(self, new: int, total: int) -> Tensor:
        self.reach(total)
        rows = self.table[:, self.table.shape[1] - total :]
        return rows if new == 1 else F.pad(rows, (0, 0, 0, new - 1))

    def forward(
        self, x: Tensor, past: Sequence[TorchKVCache], layer: int, mask: Tensor | None
    ) -> Tensor:
        """x (batch, n, dim), the batch divided evenly among the pasts."""
        q, k, v = self.parts(x)
        parts = zip(past, *(part.chunk(len(past)) for part in (q, k, v)), strict=True)
        contexts = [
            self.attend_to(own, *cache.put(layer, keys, values), mask)
            for cache, own, keys, values in parts
        ]
        return self.linear_out(
            (contexts[0] if len(contexts) == 1 else torch.cat(contexts))
            .transpose(1, 2)
            .reshape(x.shape)
        )


class RelativeStack(nn.Module):
    def __init__(
        self,
        d_in: int,
        dims: StackDims,
        norms: Sequence[str],
        squash: Callable[[Tensor], Tensor],
        after_embed: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__()
        self.dims, self._after_embed = dims, after_embed
        self.embed = Embed(d_in, dims.hidden)
        self.encoders = nn.ModuleList(
            Layer(dims.hidden, dims.heads, dims.inner, CausalAttention, norms, squash)
            for _ in range(dims.layers)
        )
        self.after_norm = nn.LayerNorm(dims.hidden)

    def embedded(self, x: Tensor) -> Tensor:
        """(batch, n, d_in) -> (batch, n, hidden)"""
        x = self.embed(x)
        return x if self._after_embed is None else self._after_embed(x)

    def forward(self, x: Tensor, pasts: Sequence[TorchKVCache]) -> Tensor:
        """x (batch, n, hidden), embedded, behind the pasts, which hold it afterwards -> the same
        before the last norm.
        """
        n = x.shape[1]
        mask = (
            None
            if n == 1
            else torch.full((n, n), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        )
        for past in pasts:
            past.reserve(n)
        for index, layer in enumerate(self.encoders):
            x = layer(x, pasts, index, mask)
        for past in pasts:
            past.advance(n)
        return x

    def reach(self, positions: int) -> None:
        """Room for so many positions, ahead of the request that needs it."""
        for layer in self.encoders:
            layer.self_attn.reach(positions)
