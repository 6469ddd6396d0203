"""The velocity network of the flow: a U-net without down-sampling, 14 resnets and 56 transformer
blocks at real size.

It runs on new frames only, in (batch, frames, channels); earlier frames live in `EstimatorCache`,
one per Euler step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from .conv import ConvCache, TimeConv
from .dims import MEL_BANDS, TIME_WIDTH, FlowDims
from .kv_cache import BatchKVStore, BufferPool, KVStore, attend


class EstimatorCache:
    """What one Euler step remembers: K/V of all transformer blocks and the tails of all
    convolutions, both guidance rows.
    """

    def __init__(
        self,
        dims: FlowDims,
        dtype: torch.dtype,
        device: torch.device | str,
        rooms: BufferPool | None = None,
    ):
        self.store = KVStore(
            dims.estimator_layers,
            2,
            dims.estimator_heads,
            dims.estimator_head_dim,
            dtype,
            device,
            rooms,
        )
        self.tails = ConvCache()

    def fork(self) -> EstimatorCache:
        """For a frozen store: the same past, shared, and a future of its own."""
        twin = object.__new__(EstimatorCache)
        twin.store, twin.tails = self.store.fork(), self.tails.copy()
        return twin

    def freeze(self) -> None:
        self.store.freeze()

    def release(self) -> None:
        self.store.release()

    @property
    def bytes(self) -> int:
        """Its own, without what it shares."""
        return self.store.bytes

    @property
    def shared_bytes(self) -> int:
        return 0 if self.store.prefix is None else self.store.prefix.nbytes

    def row(self, index: int) -> EstimatorCache:
        """One guidance row of it, in the same memory.

        Of a past that has room for what comes; `join` afterwards.
        """
        part = object.__new__(EstimatorCache)
        part.store, part.tails = self.store.row(index), self.tails.row(index)
        return part

    def join(self, parts: Sequence[EstimatorCache], new: int) -> None:
        self.store.advance(new)
        self.tails.join([part.tails for part in parts])

    def mark(self) -> tuple[int, dict[int, torch.Tensor]]:
        """Where it stands, for `back_to`: what a call that failed half-way has added is
        forgotten.
        """
        return self.store.length, self.tails.rows.copy()

    def back_to(self, mark: tuple[int, dict[int, torch.Tensor]]) -> None:
        self.store.back_to(mark[0])
        self.tails.rows = mark[1].copy()


class BatchCache:
    """Pasts of several requests as one to a call of the estimator: their rows one after the other.

    `part` them afterwards.
    """

    def __init__(self, pasts: Sequence[EstimatorCache]):
        self._pasts, self.store, self.tails = (
            pasts,
            BatchKVStore([past.store for past in pasts]),
            ConvCache(),
        )
        if pasts[0].tails.rows:
            self.tails.join([past.tails for past in pasts])

    def part(self) -> None:
        for past, tails in zip(self._pasts, self.tails.parts(len(self._pasts)), strict=True):
            past.tails = tails


Turn = Callable[
    [torch.Tensor], torch.Tensor
]  # (3, batch, heads, n, width), queries, keys and values -> the same with positions in them


def time_waves(times: torch.Tensor, width: int) -> torch.Tensor:
    """times (n,) in 0..1 -> (n, width): sines, then cosines."""
    half = width // 2
    angle = (
        1000.0
        * times[:, None]
        * torch.exp(torch.arange(half, device=times.device) * -(math.log(10000.0) / (half - 1)))
    )
    return torch.cat([angle.sin(), angle.cos()], -1)


def widely(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """The layer in float32 at least: for what is made once, where precision costs nothing."""
    wide = torch.promote_types(layer.weight.dtype, torch.float32)
    return F.linear(x.to(wide), layer.weight.to(wide), layer.bias.to(wide))


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int, width: int, bias: bool = False):
        super().__init__()
        self.heads, self.width = heads, width
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(channels, heads * width, bias=bias) for _ in range(3)
        )
        self.to_out = nn.ModuleList([nn.Linear(heads * width, channels)])

    def pack(self) -> None:
        parts = self.to_q, self.to_k, self.to_v
        stacked = torch.cat([part.weight.detach() for part in parts])
        self.qkv = nn.Linear(*stacked.shape[::-1], bias=self.to_q.bias is not None, device="meta")
        self.qkv.weight = nn.Parameter(stacked, requires_grad=False)
        if self.to_q.bias is not None:
            self.qkv.bias = nn.Parameter(
                torch.cat([part.bias.detach() for part in parts]), requires_grad=False
            )
        del self.to_q, self.to_k, self.to_v

    def forward(
        self,
        x: torch.Tensor,
        store: KVStore | BatchKVStore | None,
        layer: int,
        mask: torch.Tensor | None,
        turn: Turn | None = None,
    ) -> torch.Tensor:
        batch, new, _ = x.shape
        qkv = self.qkv(x).view(batch, new, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        qkv = qkv if turn is None else turn(qkv)
        context = (
            attend(qkv[0], [(qkv[1], qkv[2])], mask)
            if store is None
            else store.attend(layer, qkv[0], qkv[1:], mask)
        )
        return self.to_out[0](context.transpose(1, 2).reshape(batch, new, -1))


class Gelu(nn.Module):
    def __init__(self, d_in: int, d_out: int):
        super().__init__()
        self.proj = nn.Linear(d_in, d_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.proj(x))


class FeedForward(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.net = nn.ModuleList(
            [Gelu(channels, 4 * channels), nn.Identity(), nn.Linear(4 * channels, channels)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net[2](self.net[0](x))


class Transformer(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        channels = dims.estimator_channels
        self.attn1 = Attention(channels, dims.estimator_heads, dims.estimator_head_dim)
        self.norm1, self.norm3 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.ff = FeedForward(channels)

    def forward(
        self,
        x: torch.Tensor,
        store: KVStore | BatchKVStore | None,
        layer: int,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        x = x + self.attn1(self.norm1(x), store, layer, mask)
        return x + self.ff(self.norm3(x))


class ConvBlock(nn.Module):
    """Causal convolution, LayerNorm over channels, Mish."""

    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        self.block = nn.ModuleList([TimeConv(c_in, c_out, 3), nn.Identity(), nn.LayerNorm(c_out)])

    def forward(self, x: torch.Tensor, past: ConvCache) -> torch.Tensor:
        return F.mish(self.block[2](self.block[0].causal(x, past)))


class Resnet(nn.Module):
    def __init__(self, c_in: int, c_out: int, block: type[nn.Module] = ConvBlock):
        super().__init__()
        self.block1, self.block2 = block(c_in, c_out), block(c_out, c_out)
        self.mlp = nn.ModuleList([nn.Identity(), nn.Linear(4 * c_out, c_out)])
        self.res_conv = TimeConv(c_in, c_out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, past: ConvCache) -> torch.Tensor:
        h = self.block2(self.block1(x, past) + time, past)
        return h + self.res_conv(x)


class TimeMlp(nn.Module):
    def __init__(self, d_in: int, d_out: int):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(d_in, d_out), nn.Linear(d_out, d_out)

    def rows(self, times: torch.Tensor, resnets: Sequence[Resnet]) -> torch.Tensor:
        """times (n,) in 0..1 -> (n, resnets, channels): all that the network makes of the time.

        Constant for the fixed steps.
        """
        hidden = F.mish(
            widely(self.linear_2, F.silu(widely(self.linear_1, time_waves(times, TIME_WIDTH))))
        )
        return torch.stack([widely(resnet.mlp[1], hidden) for resnet in resnets], 1).to(
            self.linear_1.weight.dtype
        )


class Estimator(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        c = dims.estimator_channels

        def stage(c_in: int, *more: nn.Module) -> nn.ModuleList:
            return nn.ModuleList(
                [
                    Resnet(c_in, c),
                    nn.ModuleList(Transformer(dims) for _ in range(dims.estimator_n_blocks)),
                    *more,
                ]
            )

        self.time_mlp = TimeMlp(TIME_WIDTH, 4 * c)
        self.down_blocks = nn.ModuleList([stage(TIME_WIDTH, TimeConv(c, c, 3))])
        self.mid_blocks = nn.ModuleList(stage(c) for _ in range(dims.estimator_mid_blocks))
        self.up_blocks = nn.ModuleList([stage(2 * c, TimeConv(c, c, 3))])
        self.final_block = ConvBlock(c, c)
        self.final_proj = TimeConv(c, MEL_BANDS, 1)
        for slot, conv in enumerate(m for m in self.modules() if isinstance(m, TimeConv)):
            conv.slot = slot

    @property
    def stages(self) -> list[nn.ModuleList]:
        return [self.down_blocks[0], *self.mid_blocks, self.up_blocks[0]]

    @property
    def products(self) -> list[nn.Module]:
        """Layers in which matrices are most of the time."""
        return [stage[1] for stage in self.stages]

    def time_rows(self, times: torch.Tensor) -> torch.Tensor:
        return self.time_mlp.rows(times, [stage[0] for stage in self.stages])

    def forward(
        self,
        x: torch.Tensor,
        time: torch.Tensor,
        past: EstimatorCache | BatchCache | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """x (2, n, 320; or more pairs of guidance rows) = x, mu, speaker, cond; time (resnets,
        channels); mask (n, n) additive. -> velocity (2, n, 80). past None: a run of its own that
        leaves nothing behind.
        """
        store, tails = (past.store, past.tails) if past else (None, ConvCache())
        if store is not None:
            store.room_for(x.shape[1])
        layer, skip, last = 0, None, len(self.mid_blocks) + 1
        for i, stage in enumerate(self.stages):
            if i == last:
                x = torch.cat([x, skip], -1)
            x = stage[0](x, time[i], tails)
            for block in stage[1]:
                x = block(x, store, layer, mask)
                layer += 1
            if i == 0:
                skip = x
            if len(stage) == 3:
                x = stage[2].causal(x, tails)
        if store is not None:
            store.advance(x.shape[1])
        return self.final_proj(self.final_block(x, tails))
