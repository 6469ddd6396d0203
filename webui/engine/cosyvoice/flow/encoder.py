"""Speech ids to mu: conformer-like encoder with relative attention, 3 ids of look-ahead and doubling of the rate.

It runs on new positions only; what it needs of earlier ones is in `EncoderPast`. It knows nothing of voices or audio.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .blocks import Blocks
from .conv import Past, TimeConv
from .dims import FRAMES_PER_ID, LOOKAHEAD_IDS, FlowDims
from .kv import KvStore

SLOT_CONV2, SLOT_UP = 0, 1
TILE = 256


class EncoderPast:
    """K/V of both layer stacks and two short tails. Small (57 kB per id at real size), so a request copies its voice's."""

    def __init__(self, dims: FlowDims, dtype: torch.dtype, device: torch.device | str):
        width = dims.encoder_dim // dims.encoder_heads
        self.low = KvStore(dims.encoder_blocks, 1, dims.encoder_heads, width, dtype, device)
        self.high = KvStore(dims.up_encoder_blocks, 1, dims.encoder_heads, width, dtype, device)
        self.tails = Past()

    def copy(self) -> EncoderPast:
        twin = object.__new__(EncoderPast)
        twin.low, twin.high, twin.tails = self.low.copy(), self.high.copy(), self.tails.copy()
        return twin

    def mark(self) -> tuple[int, int, dict[int, torch.Tensor]]:
        """Where it stands, for `back_to`: what a call that failed half-way has added is forgotten."""
        return self.low.length, self.high.length, self.tails.rows.copy()

    def back_to(self, mark: tuple[int, int, dict[int, torch.Tensor]]) -> None:
        self.low.back_to(mark[0])
        self.high.back_to(mark[1])
        self.tails.rows = mark[2].copy()


def sinusoid(distances: torch.Tensor, width: int) -> torch.Tensor:
    """distances (n,), query minus key -> (n, width) fp64: even columns sin, odd columns cos."""
    angle = distances[:, None] * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * -(math.log(10000.0) / width))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


class RelativeAttention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (nn.Linear(dim, dim) for _ in range(4))
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, self.width))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, self.width))

    def pack(self) -> None:
        parts = (self.linear_q, self.linear_k, self.linear_v)
        self.register_buffer("qkv_weight", torch.cat([p.weight.detach() for p in parts]), persistent=False)
        self.register_buffer("qkv_bias", torch.cat([p.bias.detach() for p in parts]), persistent=False)
        del self.linear_q, self.linear_k, self.linear_v
        self.table = self._table(TILE)

    def _table(self, reach: int) -> torch.Tensor:
        """(heads, 2 * reach, width) for distances reach-1 down to -reach. Made in tiles of one shape, so that a row has the same
        bits however far the table goes: no request may hear which others came before it."""
        weight = self.linear_pos.weight
        distances = torch.arange(reach - 1, -reach - 1, -1, dtype=torch.float64).split(TILE)
        rows = torch.cat([self.linear_pos(sinusoid(tile, weight.shape[0]).to(weight)) for tile in distances])
        return rows.view(-1, self.heads, self.width).transpose(0, 1).contiguous()

    def positions(self, new: int, total: int) -> torch.Tensor:
        """(heads, new + total - 1, width): distances total-1 down to -(new-1). The table depends on weights only and just grows."""
        table = self.table
        if table.shape[1] // 2 < total:
            table = self.table = self._table(max(-(-total // TILE) * TILE, table.shape[1]))
        reach = table.shape[1] // 2
        return table[:, reach - total : reach + new - 1]

    def forward(self, x: torch.Tensor, store: KvStore, layer: int, mask: torch.Tensor | None) -> torch.Tensor:
        """x (batch, n, dim); mask additive, (..., n, m) for the last m keys."""
        batch, new, _ = x.shape
        total = len(store) + new
        q, k, v = F.linear(x, self.qkv_weight, self.qkv_bias).view(batch, new, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        ((keys, values),) = store.put(layer, torch.stack([k, v]))
        scale = self.width**-0.5
        by_distance = ((q + self.pos_bias_v[:, None]) * scale) @ self.positions(new, total).mT
        # row i is the same list of distances moved by one: column new-1-i+j holds distance (query i) - (key j)
        span = new + total - 1
        bias = by_distance.as_strided((batch, self.heads, new, total), (self.heads * new * span, new * span, span - 1, 1), new - 1)
        if mask is not None:
            bias = bias.clone()
            bias[..., total - mask.shape[-1] :] += mask
        out = F.scaled_dot_product_attention(q + self.pos_bias_u[:, None], keys, values, attn_mask=bias)
        return self.linear_out(out.transpose(1, 2).reshape(batch, new, -1))


class FeedForward(nn.Module):
    def __init__(self, dim: int, inner: int):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(dim, inner), nn.Linear(inner, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w_2(F.silu(self.w_1(x)))


class Layer(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        self.self_attn = RelativeAttention(dims.encoder_dim, dims.encoder_heads)
        self.feed_forward = FeedForward(dims.encoder_dim, dims.encoder_ffn_dim)
        self.norm_mha = nn.LayerNorm(dims.encoder_dim, eps=1e-12)
        self.norm_ff = nn.LayerNorm(dims.encoder_dim, eps=1e-12)

    def forward(self, x: torch.Tensor, store: KvStore, layer: int, mask: torch.Tensor | None) -> torch.Tensor:
        x = x + self.self_attn(self.norm_mha(x), store, layer, mask)
        return x + self.feed_forward(self.norm_ff(x))


class Embed(nn.Module):
    def __init__(self, d_in: int, dim: int):
        super().__init__()
        self.out = nn.ModuleList([nn.Linear(d_in, dim), nn.LayerNorm(dim)])
        self.scale = math.sqrt(dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out[1](self.out[0](x)) * self.scale


class Lookahead(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.conv1, self.conv2 = TimeConv(dim, dim, LOOKAHEAD_IDS + 1), TimeConv(dim, dim, 3)
        self.conv2.slot = SLOT_CONV2

    def forward(self, x: torch.Tensor, tails: Past) -> torch.Tensor:
        """x (1, n + 3, dim), the last 3 rows being context only -> (1, n, dim)"""
        y = F.leaky_relu(self.conv1(x), 0.01)
        return x[:, : y.shape[1]] + self.conv2.causal(y, tails)


class Doubling(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.conv = TimeConv(dim, dim, 5)
        self.conv.slot = SLOT_UP

    def forward(self, x: torch.Tensor, tails: Past) -> torch.Tensor:
        # two rows before the doubling are the four frames that the kernel looks back on
        return self.conv(tails.lead(SLOT_UP, x, 2).repeat_interleave(FRAMES_PER_ID, 1))


class Encoder(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        self.embed = Embed(dims.input_size, dims.encoder_dim)
        self.up_embed = Embed(dims.encoder_dim, dims.encoder_dim)
        self.pre_lookahead_layer = Lookahead(dims.encoder_dim)
        self.up_layer = Doubling(dims.encoder_dim)
        self.encoders = nn.ModuleList(Layer(dims) for _ in range(dims.encoder_blocks))
        self.up_encoders = nn.ModuleList(Layer(dims) for _ in range(dims.up_encoder_blocks))
        self.after_norm = nn.LayerNorm(dims.encoder_dim)

    def forward(self, x: torch.Tensor, final: bool, past: EncoderPast, blocks: Blocks | None) -> torch.Tensor:
        """x (1, rows, input_size): embedded new ids, not final: 3 more that are context only. -> (1, 2n, encoder_dim).
        blocks None: all positions see each other."""
        x = self.embed(x)
        if final:
            x = F.pad(x, (0, 0, 0, LOOKAHEAD_IDS))
        x = self.pre_lookahead_layer(x, past.tails)
        x = self._stack(self.encoders, x, past.low, blocks, 1)
        x = self.up_embed(self.up_layer(x, past.tails))
        return self.after_norm(self._stack(self.up_encoders, x, past.high, blocks, FRAMES_PER_ID))

    def _stack(self, layers: nn.ModuleList, x: torch.Tensor, store: KvStore, blocks: Blocks | None, per_id: int) -> torch.Tensor:
        new = x.shape[1]
        mask = blocks.mask(len(store) // per_id, new // per_id, per_id, x) if blocks else None
        store.room_for(new)
        for i, layer in enumerate(layers):
            x = layer(x, store, i, mask)
        store.advance(new)
        return x
