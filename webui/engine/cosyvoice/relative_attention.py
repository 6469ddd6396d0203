"""Attention that knows how far its keys are, and the layers around it: what the encoders of all
generations are made of. Blind to what they encode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

TILE = 256


class KVBuffer(Protocol):
    def put(self, layer: int, kv: torch.Tensor) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        """kv (2, batch, heads, n, width) behind what is there.

        Returns the one (K, V) that is visible now.
        """


class NoKVBuffer:
    """A past that remembers nothing: for networks that see all their positions at once."""

    def put(self, layer: int, kv: torch.Tensor) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        return [(kv[0], kv[1])]


def sinusoid(distances: torch.Tensor, width: int) -> torch.Tensor:
    """distances (n,), query minus key -> (n, width) fp64: even columns sin, odd columns cos."""
    angle = distances[:, None] * torch.exp(
        torch.arange(0, width, 2, dtype=torch.float64) * -(math.log(10000.0) / width)
    )
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class RelativeAttention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (
            nn.Linear(dim, dim) for _ in range(4)
        )
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, self.width))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, self.width))

    def pack(self) -> None:
        parts = (self.linear_q, self.linear_k, self.linear_v)
        self.register_buffer(
            "qkv_weight", torch.cat([p.weight.detach() for p in parts]), persistent=False
        )
        self.register_buffer(
            "qkv_bias", torch.cat([p.bias.detach() for p in parts]), persistent=False
        )
        del self.linear_q, self.linear_k, self.linear_v
        self.table = self.rows(TILE, -TILE)

    def rows(self, above: int, last: int) -> torch.Tensor:
        """(heads, above - last, width) for distances above-1 down to `last`, both whole tiles.

        Made in tiles of one shape, so that a row has the same bits however far the table goes: no
        request may hear which others came before it.
        """
        weight = self.linear_pos.weight
        distances = torch.arange(above - 1, last - 1, -1, dtype=torch.float64).split(TILE)
        rows = torch.cat(
            [self.linear_pos(sinusoid(tile, weight.shape[0]).to(weight)) for tile in distances]
        )
        return rows.view(-1, self.heads, self.width).transpose(0, 1).contiguous()

    def positions(self, new: int, total: int) -> torch.Tensor:
        """(heads, new + total - 1, width): distances total-1 down to -(new-1).

        The table depends on weights only and just grows.
        """
        table = self.table
        if table.shape[1] // 2 < total:
            reach = max(-(-total // TILE) * TILE, table.shape[1])
            table = self.table = self.rows(reach, -reach)
        reach = table.shape[1] // 2
        return table[:, reach - total : reach + new - 1]

    def parts(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, n, dim) -> queries, keys and values, (3, batch, heads, n, width)"""
        return (
            F.linear(x, self.qkv_weight, self.qkv_bias)
            .view(*x.shape[:2], 3, self.heads, self.width)
            .permute(2, 0, 3, 1, 4)
        )

    def attend_to(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """q (batch, heads, n, width) are the last of keys, values (batch, heads, total, width) ->
        (batch, heads, n, width)
        """
        batch, heads, new, _ = q.shape
        total = keys.shape[2]
        by_distance = ((q + self.pos_bias_v[:, None]) * self.width**-0.5) @ self.positions(
            new, total
        ).mT
        # row i is the same list of distances moved by one: column new-1-i+j holds distance (query
        # i) - (key j)
        span = new + total - 1
        bias = by_distance.as_strided(
            (batch, heads, new, total), (heads * new * span, new * span, span - 1, 1), new - 1
        )
        if mask is not None:
            bias = bias.clone()
            bias[..., total - mask.shape[-1] :] += mask
        return F.scaled_dot_product_attention(
            q + self.pos_bias_u[:, None], keys, values, attn_mask=bias
        )

    def forward(
        self, x: torch.Tensor, past: KVBuffer, layer: int, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """x (batch, n, dim); mask additive, (..., n, m) for the last m keys."""
        q, k, v = self.parts(x)
        ((keys, values),) = past.put(layer, torch.stack([k, v]))
        return self.linear_out(
            self.attend_to(q, keys, values, mask).transpose(1, 2).reshape(x.shape)
        )


class FeedForward(nn.Module):
    def __init__(self, dim: int, inner: int, squash: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.w_1, self.w_2, self.squash = nn.Linear(dim, inner), nn.Linear(inner, dim), squash

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w_2(self.squash(self.w_1(x)))


class Layer(nn.Module):
    """norms: their names in the published files."""

    def __init__(
        self,
        dim: int,
        heads: int,
        inner: int,
        attention: type[RelativeAttention] = RelativeAttention,
        norms: Sequence[str] = ("norm_mha", "norm_ff"),
        squash: Callable[[torch.Tensor], torch.Tensor] = F.silu,
    ):
        super().__init__()
        self.self_attn, self.feed_forward = attention(dim, heads), FeedForward(dim, inner, squash)
        self.norms = tuple(norms)
        for name in self.norms:
            self.add_module(name, nn.LayerNorm(dim, eps=1e-12))

    def forward(
        self, x: torch.Tensor, past: KVBuffer, layer: int, mask: torch.Tensor | None
    ) -> torch.Tensor:
        first, second = (getattr(self, name) for name in self.norms)
        x = x + self.self_attn(first(x), past, layer, mask)
        return x + self.feed_forward(second(x))


class Embed(nn.Module):
    def __init__(self, d_in: int, dim: int):
        super().__init__()
        self.out = nn.ModuleList([nn.Linear(d_in, dim), nn.LayerNorm(dim)])
        self.scale = math.sqrt(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out[1](self.out[0](x)) * self.scale
