"""Speech ids to mu: layers in which every id sees every other, and a regulator that brings 50 ids a
second to 86 frames.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..dims_v1 import OVERLAP_FRAMES, OVERLAP_IDS
from ..relative_attention import Embed, Layer, NoKVBuffer
from .dims import MEL_BANDS
from .hop_dims import HopDims


class Encoder(nn.Module):
    def __init__(self, dims: HopDims):
        super().__init__()
        self.embed = Embed(dims.input_size, dims.encoder_dim)
        self.encoders = nn.ModuleList(
            Layer(dims.encoder_dim, dims.encoder_heads, dims.encoder_ffn_dim)
            for _ in range(dims.encoder_blocks)
        )
        self.after_norm = nn.LayerNorm(dims.encoder_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, n, input_size) -> (rows, n, encoder_dim)"""
        x = self.embed(x)
        for index, layer in enumerate(self.encoders):
            x = layer(x, NoKVBuffer(), index, None)
        return self.after_norm(x)


class LengthRegulator(nn.Module):
    """Its norms count all channels and frames as one group: each frame depends on the whole
    call.
    """

    def __init__(self):
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [
                nn.Conv1d(MEL_BANDS, MEL_BANDS, 3, padding=1),
                nn.GroupNorm(1, MEL_BANDS),
                nn.Mish(),
            ]
        self.model = nn.Sequential(*layers, nn.Conv1d(MEL_BANDS, MEL_BANDS, 1))

    def forward(
        self, prompt: torch.Tensor, new: torch.Tensor, prompt_frames: int, frames: int
    ) -> torch.Tensor:
        """prompt (1, p, 80), new (1, n, 80) -> (1, prompt_frames + frames, 80)"""
        parts = [
            (prompt, prompt_frames),
            *((new[:, start:end], count) for start, end, count in pieces(new.shape[1], frames)),
        ]
        x = torch.cat([_upsample(part, count) for part, count in parts if count], 2)
        return self.model(x).mT


def pieces(ids: int, frames: int) -> list[tuple[int, int, int]]:
    """(start, end, frames) of a hop's ids that are stretched by themselves: the ends of a long one
    apart from its middle, so that the overlap of two calls lies alike in both.
    """
    if ids <= 2 * OVERLAP_IDS:
        return [(0, ids, frames)]
    inner = ids - OVERLAP_IDS
    return [
        (0, OVERLAP_IDS, OVERLAP_FRAMES),
        (OVERLAP_IDS, inner, frames - 2 * OVERLAP_FRAMES),
        (inner, ids, OVERLAP_FRAMES),
    ]


def _upsample(x: torch.Tensor, frames: int) -> torch.Tensor:
    """(1, n, 80) -> (1, 80, frames)"""
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.interpolate(x.mT.to(wide), size=frames, mode="linear").to(x.dtype)
