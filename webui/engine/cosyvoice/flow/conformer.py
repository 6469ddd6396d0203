"""Speech ids to mu: conformer-like encoder with relative attention, 3 ids of look-ahead and
doubling of the rate.

It runs on new positions only; what it needs of earlier ones is in `EncoderCache`. It knows nothing
of voices or audio.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..relative_attention import Embed, Layer
from .blocks import Blocks
from .conv import ConvCache, TimeConv
from .dims import FRAMES_PER_ID, LOOKAHEAD_IDS, FlowDims
from .kv_cache import KVStore

SLOT_CONV2, SLOT_UP = 0, 1


class EncoderCache:
    """K/V of both layer stacks and two short tails.

    Small (57 kB per id at real size), so a request copies its voice's.
    """

    def __init__(self, dims: FlowDims, dtype: torch.dtype, device: torch.device | str):
        width = dims.encoder_dim // dims.encoder_heads
        self.low = KVStore(dims.encoder_blocks, 1, dims.encoder_heads, width, dtype, device)
        self.high = KVStore(dims.up_encoder_blocks, 1, dims.encoder_heads, width, dtype, device)
        self.tails = ConvCache()

    def copy(self) -> EncoderCache:
        twin = object.__new__(EncoderCache)
        twin.low, twin.high, twin.tails = self.low.copy(), self.high.copy(), self.tails.copy()
        return twin

    def mark(self) -> tuple[int, int, dict[int, torch.Tensor]]:
        """Where it stands, for `back_to`: what a call that failed half-way has added is
        forgotten.
        """
        return self.low.length, self.high.length, self.tails.rows.copy()

    def back_to(self, mark: tuple[int, int, dict[int, torch.Tensor]]) -> None:
        self.low.back_to(mark[0])
        self.high.back_to(mark[1])
        self.tails.rows = mark[2].copy()


class PreLookahead(nn.Module):
    def __init__(self, dim: int, inner: int):
        super().__init__()
        self.conv1, self.conv2 = TimeConv(dim, inner, LOOKAHEAD_IDS + 1), TimeConv(inner, dim, 3)
        self.conv2.slot = SLOT_CONV2

    def forward(self, x: torch.Tensor, tails: ConvCache) -> torch.Tensor:
        """x (1, n + 3, dim), the last 3 rows being context only -> (1, n, dim)"""
        y = F.leaky_relu(self.conv1(x), 0.01)
        return x[:, : y.shape[1]] + self.conv2.causal(y, tails)


class Doubling(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.conv = TimeConv(dim, dim, 5)
        self.conv.slot = SLOT_UP

    def forward(self, x: torch.Tensor, tails: ConvCache) -> torch.Tensor:
        # two rows before the doubling are the four frames that the kernel looks back on
        return self.conv(tails.lead(SLOT_UP, x, 2).repeat_interleave(FRAMES_PER_ID, 1))


class Encoder(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        self.embed = Embed(dims.input_size, dims.encoder_dim)
        self.up_embed = Embed(dims.encoder_dim, dims.encoder_dim)
        self.pre_lookahead_layer = PreLookahead(dims.encoder_dim, dims.encoder_dim)
        self.up_layer = Doubling(dims.encoder_dim)
        sizes = dims.encoder_dim, dims.encoder_heads, dims.encoder_ffn_dim
        self.encoders = nn.ModuleList(Layer(*sizes) for _ in range(dims.encoder_blocks))
        self.up_encoders = nn.ModuleList(Layer(*sizes) for _ in range(dims.up_encoder_blocks))
        self.after_norm = nn.LayerNorm(dims.encoder_dim)

    def forward(
        self, x: torch.Tensor, final: bool, past: EncoderCache, blocks: Blocks | None
    ) -> torch.Tensor:
        """x (1, rows, input_size): embedded new ids, not final: 3 more that are context only. ->
        (1, 2n, encoder_dim). blocks None: all positions see each other.
        """
        x = self.embed(x)
        if final:
            x = F.pad(x, (0, 0, 0, LOOKAHEAD_IDS))
        x = self.pre_lookahead_layer(x, past.tails)
        x = self._stack(self.encoders, x, past.low, blocks, 1)
        x = self.up_embed(self.up_layer(x, past.tails))
        return self.after_norm(self._stack(self.up_encoders, x, past.high, blocks, FRAMES_PER_ID))

    def _stack(
        self,
        layers: nn.ModuleList,
        x: torch.Tensor,
        store: KVStore,
        blocks: Blocks | None,
        per_id: int,
    ) -> torch.Tensor:
        new = x.shape[1]
        mask = blocks.mask(len(store) // per_id, new // per_id, per_id, x) if blocks else None
        store.room_for(new)
        for i, layer in enumerate(layers):
            x = layer(x, store, i, mask)
        store.advance(new)
        return x
