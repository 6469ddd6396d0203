"""The velocity network of the flow: a U-net that halves the rate once, 16 resnets and 64
transformer blocks at real size.

Every frame sees every other, so a call of it leaves nothing behind that another could use.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .conv import TimeConv
from .dims import MEL_BANDS, TIME_WIDTH
from .hop_dims import HopDims
from .unet import Resnet, TimeMlp, Transformer
from .valid_frames import ALL, AllFrames

GROUPS = 8


class SameConv(TimeConv):
    """Looks as far ahead as back: (batch, n, c_in) -> (batch, n / step, c_out)."""

    def __init__(self, c_in: int, c_out: int, kernel: int, step: int = 1):
        super().__init__(c_in, c_out, kernel)
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around = self.kernel // 2
        return super().forward(F.pad(x, (0, 0, around, around)))[:, :: self.step]


class GroupBlock(nn.Module):
    """Convolution, norm of groups of channels over all frames, Mish."""

    def __init__(self, c_in: int, c_out: int):
        super().__init__()
        self.block = nn.ModuleList([SameConv(c_in, c_out, 3), nn.GroupNorm(GROUPS, c_out)])

    def forward(self, x: torch.Tensor, real: AllFrames = ALL) -> torch.Tensor:
        return F.mish(real.norm(self.block[1], self.block[0](real.only(x))))


class Halving(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = SameConv(channels, channels, 3, step=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Doubling(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.ConvTranspose1d(channels, channels, 4, 2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.mT).mT


class UNet(nn.Module):
    def __init__(self, dims: HopDims):
        super().__init__()
        c = dims.estimator_channels

        def stage(c_in: int, *more: nn.Module) -> nn.ModuleList:
            return nn.ModuleList(
                [
                    Resnet(c_in, c, GroupBlock),
                    nn.ModuleList(Transformer(dims) for _ in range(dims.estimator_n_blocks)),
                    *more,
                ]
            )

        self.time_mlp = TimeMlp(TIME_WIDTH, 4 * c)
        self.down_blocks = nn.ModuleList(
            [stage(TIME_WIDTH, Halving(c)), stage(c, SameConv(c, c, 3))]
        )
        self.mid_blocks = nn.ModuleList(stage(c) for _ in range(dims.estimator_mid_blocks))
        self.up_blocks = nn.ModuleList([stage(2 * c, Doubling(c)), stage(2 * c, SameConv(c, c, 3))])
        self.final_block = GroupBlock(c, c)
        self.final_proj = TimeConv(c, MEL_BANDS, 1)

    @property
    def stages(self) -> list[nn.ModuleList]:
        return [*self.down_blocks, *self.mid_blocks, *self.up_blocks]

    @property
    def products(self) -> list[nn.Module]:
        """Layers in which matrices are most of the time."""
        return [stage[1] for stage in self.stages]

    def time_rows(self, times: torch.Tensor) -> torch.Tensor:
        return self.time_mlp.rows(times, [stage[0] for stage in self.stages])

    def forward(
        self, x: torch.Tensor, time: torch.Tensor, past: None = None, real: AllFrames | None = None
    ) -> torch.Tensor:
        """x (rows, n, 320) = x, mu, speaker, cond; time (resnets, channels); real: of the frames,
        all when None -> velocity (rows, n, 80).
        """
        skips, stages, real = [], self.stages, real or ALL
        for i, stage in enumerate(stages):
            if i >= len(stages) - len(self.up_blocks):
                skip = skips.pop()
                x = torch.cat([x[:, : skip.shape[1]], skip], -1)  # an odd length came back even
            x = stage[0](x, time[i], real)
            mask = real.hidden(x)
            for block in stage[1]:
                x = block(x, None, 0, mask)
            if i < len(self.down_blocks):
                skips.append(x)
            if len(stage) == 3:
                x = stage[2](real.only(x))
        return self.final_proj(self.final_block(x, real))
