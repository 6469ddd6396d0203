"""The velocity network of the flow: a transformer whose every norm is shifted and scaled by the
time (DiT), 22 blocks at real size.

It runs on new frames only, in (batch, frames, channels); earlier frames live in `EstimatorCache`,
one per Euler step. What it makes of the time is one table for the fixed steps, so the matrices for
that, two fifths of its weights, are gone once `pack` has run.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .conv import ConvCache
from .dims import MEL_BANDS
from .dit_dims import (
    NORM_EPSILON,
    POSITION_GROUPS,
    POSITION_KERNEL,
    ROTARY_BASE,
    TIME_WIDTH,
    DitDims,
)
from .kv_cache import BatchKVStore, KVStore
from .unet import Attention, BatchCache, EstimatorCache, Turn, time_waves, widely

# of the time table: shift, 1 + scale, gate of the attention, then of the feed-forward
ROWS_PER_BLOCK = 6
SCALES = (1, 4)


class GroupConv(nn.Conv1d):
    """Looks left only, in groups of channels: (batch, n, channels) -> the same."""

    def __init__(self, channels: int, slot: int):
        super().__init__(channels, channels, POSITION_KERNEL, groups=POSITION_GROUPS)
        self.slot = slot

    def forward(self, x: torch.Tensor, past: ConvCache) -> torch.Tensor:
        return super().forward(past.lead(self.slot, x, POSITION_KERNEL - 1).mT).mT


class ConvPositionEmbedding(nn.Module):
    """How a frame knows which frames are near it."""

    def __init__(self, dim: int):
        super().__init__()
        self.conv1, self.conv2 = (nn.ModuleList([GroupConv(dim, slot)]) for slot in range(2))

    def forward(self, x: torch.Tensor, past: ConvCache) -> torch.Tensor:
        return F.mish(self.conv2[0](F.mish(self.conv1[0](x, past)), past))


class InputEmbed(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.proj = nn.Linear(4 * MEL_BANDS, dim)
        self.conv_pos_embed = ConvPositionEmbedding(dim)

    def pack(self) -> None:
        """The weights are for x, cond, mu, speaker; the solver gives x, mu, speaker, cond."""
        x, cond, mu, speaker = self.proj.weight.detach().split(MEL_BANDS, 1)
        self.proj.weight = nn.Parameter(torch.cat([x, mu, speaker, cond], 1), requires_grad=False)

    def forward(self, x: torch.Tensor, past: ConvCache) -> torch.Tensor:
        x = self.proj(x)
        return x + self.conv_pos_embed(x, past)


class TimeEmbed(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.time_mlp = nn.ModuleList(
            [nn.Linear(TIME_WIDTH, dim), nn.Identity(), nn.Linear(dim, dim)]
        )

    def forward(self, times: torch.Tensor) -> torch.Tensor:
        """times (n,) in 0..1 -> (n, dim) float32 at least"""
        return widely(
            self.time_mlp[2], F.silu(widely(self.time_mlp[0], time_waves(times, TIME_WIDTH)))
        )


class FeedForward(nn.Module):
    def __init__(self, dim: int, inner: int):
        super().__init__()
        self.ff = nn.ModuleList(
            [nn.ModuleList([nn.Linear(dim, inner)]), nn.Identity(), nn.Linear(inner, dim)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ff[2](F.gelu(self.ff[0][0](x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, dims: DitDims):
        super().__init__()
        self.attn_norm = nn.ModuleDict(
            {"linear": nn.Linear(dims.dit_dim, ROWS_PER_BLOCK * dims.dit_dim)}
        )
        self.attn = Attention(dims.dit_dim, dims.dit_heads, dims.dit_head_dim, bias=True)
        self.ff = FeedForward(dims.dit_dim, dims.dit_ff_mult * dims.dit_dim)

    def forward(
        self,
        x: torch.Tensor,
        time: torch.Tensor,
        turn: Turn,
        store: KVStore | BatchKVStore | None,
        layer: int,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """time (6, dim)"""
        shift, scale, gate, shift_ff, scale_ff, gate_ff = time.unbind()
        x = torch.addcmul(x, gate, self.attn(normed(x, scale, shift), store, layer, mask, turn))
        return torch.addcmul(x, gate_ff, self.ff(normed(x, scale_ff, shift_ff)))


def normed(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], scale, shift, NORM_EPSILON)


class Dit(nn.Module):
    def __init__(self, dims: DitDims):
        super().__init__()
        self.dims = dims
        self.time_embed = TimeEmbed(dims.dit_dim)
        self.input_embed = InputEmbed(dims.dit_dim)
        self.transformer_blocks = nn.ModuleList(Block(dims) for _ in range(dims.dit_depth))
        self.norm_out = nn.ModuleDict({"linear": nn.Linear(dims.dit_dim, 2 * dims.dit_dim)})
        self.proj_out = nn.Linear(dims.dit_dim, MEL_BANDS)

    @property
    def products(self) -> list[nn.Module]:
        return [self.transformer_blocks]

    def time_rows(self, times: torch.Tensor) -> torch.Tensor:
        """times (n,) in 0..1 -> (n, 6 * depth + 2, dim): of each block shift, 1 + scale, gate,
        twice, and the last norm's 1 + scale, shift. Only before `pack`.
        """
        hidden = F.silu(self.time_embed(times))
        rows = [
            widely(block.attn_norm["linear"], hidden).unflatten(1, (ROWS_PER_BLOCK, -1))
            for block in self.transformer_blocks
        ]
        for row in rows:
            row[:, SCALES] += 1
        last = widely(self.norm_out["linear"], hidden).unflatten(1, (2, -1))
        last[:, 0] += 1
        return torch.cat([*rows, last], 1).to(self.proj_out.weight.dtype)

    def pack(self) -> None:
        """After the solver has its table of times."""
        for block in self.transformer_blocks:
            del block.attn_norm
        del self.norm_out

    def forward(
        self,
        x: torch.Tensor,
        time: torch.Tensor,
        past: EstimatorCache | BatchCache | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """x (2, n, 320; or more pairs of guidance rows) = x, mu, speaker, cond; time (6 * depth +
        2, dim); mask (n, n) additive. -> velocity (2, n, 80). past None: a run of its own that
        leaves nothing behind.
        """
        store, tails = (past.store, past.tails) if past else (None, ConvCache())
        starts = store.starts if store is not None else [0] * len(x)
        if store is not None:
            store.room_for(x.shape[1])
        turn = self.turn(starts, x.shape[1], x)
        x = self.input_embed(x, tails)
        for layer, block in enumerate(self.transformer_blocks):
            x = block(x, time[ROWS_PER_BLOCK * layer :][:ROWS_PER_BLOCK], turn, store, layer, mask)
        if store is not None:
            store.advance(x.shape[1])
        return self.proj_out(normed(x, *time[-2:]))

    def turn(self, starts: list[int] | torch.Tensor, count: int, like: torch.Tensor) -> Turn:
        """The first head's queries and keys by their position, neighbouring channels as pairs; as
        the model was trained, the other heads know none. starts: of each row.
        """
        width = self.dims.dit_head_dim
        rates = ROTARY_BASE ** (
            -torch.arange(0, width, 2, dtype=torch.float32, device=like.device) / width
        )
        at = torch.as_tensor(starts, dtype=torch.float32, device=like.device)[
            :, None
        ] + torch.arange(count, dtype=torch.float32, device=like.device)
        angles = at[..., None] * rates
        cos, sin = angles.cos().to(like.dtype), angles.sin().to(like.dtype)

        def turn(qkv: torch.Tensor) -> torch.Tensor:
            even, odd = qkv[:2, :, 0].unflatten(-1, (-1, 2)).unbind(-1)
            qkv[:2, :, 0] = torch.stack(
                (even * cos - odd * sin, odd * cos + even * sin), -1
            ).flatten(-2)
            return qkv

        return turn
