"""The vocoder model: mel and excitation to wave, by convolutions that look left, but for two that
look 4 and 3 mel frames ahead. Weights only.
"""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import nn

from .causal_source import StairSource
from .conv_tails import Tails
from .dims import BLOCK_KERNELS, FFT, MEL_BANDS, VocoderDims
from .f0 import full_precision
from .hift import HiftLayers, ResBlock

MEL_AHEAD, F0_AHEAD = 4, 3  # frames
F0_LAYERS = 5


def nothing(span: int) -> int:
    """Padding of a layer that is led."""
    return 0


class CausalF0(nn.Module):
    """In fp32 (upstream: fp64).

    Every frame is computed once, so no two pieces can disagree on its phase.
    """

    def __init__(self, channels: int):
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(F0_LAYERS):
            layers += [
                nn.Conv1d(channels if i else MEL_BANDS, channels, 3 if i else F0_AHEAD + 1),
                nn.Identity(),
            ]
        self.condnet = nn.ModuleList(layers)
        self.classifier = nn.Linear(channels, 1)

    def forward(
        self, mel: torch.Tensor, tails: Tails, is_there: torch.Tensor | float = 1.0
    ) -> torch.Tensor:
        """mel (batch, 80, n + 3), the last 3 frames being context only -> (batch, n) in Hz.
        is_there (batch, 1, n): 0 before the utterance.
        """
        ahead, *behind = self.condnet[::2]
        with full_precision():
            x = F.elu(ahead(mel)) * is_there
            for conv in behind:
                x = F.elu(conv(tails.lead(conv, x))) * is_there
            return self.classifier(x.mT)[..., 0].abs()


class CausalVocoder(HiftLayers):
    def __init__(self, dims: VocoderDims):
        super().__init__()
        self.dims = dims
        base, stages, rates = dims.base_channels, range(len(dims.up_rates)), dims.up_rates
        widths = [base >> (i + 1) for i in stages]
        self.conv_pre = nn.Conv1d(MEL_BANDS, base, MEL_AHEAD + 1)
        self.ups = nn.ModuleList(
            nn.Conv1d(base >> i, widths[i], dims.up_kernels[i]) for i in stages
        )
        self.source_downs = nn.ModuleList(_down(widths[i], prod(rates[i + 1 :])) for i in stages)
        self.source_resblocks = nn.ModuleList(
            ResBlock(widths[i], dims.source_kernels[i], nothing) for i in stages
        )
        self.resblocks = nn.ModuleList(
            ResBlock(widths[i], kernel, nothing) for i in stages for kernel in BLOCK_KERNELS
        )
        self.conv_post = nn.Conv1d(widths[-1], FFT + 2, 7)
        self.f0_predictor = CausalF0(dims.f0_cond_channels)
        self.m_source = StairSource(dims)

    def f0(self, mel: torch.Tensor, tails: Tails) -> torch.Tensor:
        """mel (1, 80, n + 3) -> (n,) on the CPU, Hz"""
        f0 = self.f0_predictor(mel, tails)[0]
        return f0.to(torch.promote_types(f0.dtype, torch.float32)).cpu()

    def shaped(self, mel: torch.Tensor, spectrum: torch.Tensor, tails: Tails) -> torch.Tensor:
        """mel (1, 80, n + 4), the last 4 frames being context only; spectrum (1, 18, 120n) of the
        excitation, at the start one column more -> the wave's complex spectrum, (1, 9, as many)
        """
        x = self.conv_pre(mel)
        for i, up in enumerate(self.ups):
            x = F.leaky_relu(x, 0.1).repeat_interleave(self.dims.up_rates[i], 2)
            x = up(tails.lead(up, x))
            if i == len(self.ups) - 1 and spectrum.shape[2] > x.shape[2]:
                x = F.pad(x, (1, 0), "reflect")  # the centred STFT has one frame more
            x = self.mixed(i, x, spectrum, tails.lead)
        return self.spectrum_of(self.conv_post(tails.lead(self.conv_post, F.leaky_relu(x, 0.01))))


def _down(channels: int, rate: int) -> nn.Conv1d:
    return nn.Conv1d(FFT + 2, channels, 1 if rate == 1 else 2 * rate, stride=rate)
