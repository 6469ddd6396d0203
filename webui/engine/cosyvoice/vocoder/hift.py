"""Mel and excitation to wave: up-sampling convolutions fed with the excitation's spectrum, then an
inverse STFT.

A mel frame touches the wave up to 13 frames before and after itself, most of it much nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, wait
from functools import partial
from math import prod
from typing import Self

import torch
import torch.nn.functional as F
from torch import nn

from ..checkpoint import assign, fold_weight_norm
from .dims import BLOCK_KERNELS, DILATIONS, FFT, FFT_HOP, LIMIT, MEL_BANDS, VocoderDims


class Snake(nn.Module):
    """x + sin(ax)^2 / a, a per channel."""

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        alpha = self.alpha[:, None]
        return (x * alpha).sin_().square_().div_(alpha + 1e-9).add_(x)


Lead = Callable[
    [nn.Conv1d, torch.Tensor], torch.Tensor
]  # what a layer is given, from what there is: a causal one, earlier columns in front


def as_it_is(conv: nn.Conv1d, x: torch.Tensor) -> torch.Tensor:
    return x


def half(span: int) -> int:
    return span // 2


class ResBlock(nn.Module):
    def __init__(self, channels: int, kernel: int, padding: Callable[[int], int] = half):
        """padding: at either end, of a layer's span, the columns it sees beside one."""
        super().__init__()

        def conv(dilation: int) -> nn.Conv1d:
            return nn.Conv1d(
                channels,
                channels,
                kernel,
                dilation=dilation,
                padding=padding((kernel - 1) * dilation),
            )

        self.convs1 = nn.ModuleList(conv(d) for d in DILATIONS)
        self.convs2 = nn.ModuleList(conv(1) for _ in DILATIONS)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in DILATIONS)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in DILATIONS)

    def narrow(self, dtype: torch.dtype) -> None:
        """Convolutions in `dtype`; what passes between them, and the sum, stay as wide as the
        block's input.
        """
        self.convs1.to(dtype)
        self.convs2.to(dtype)

    def forward(self, x: torch.Tensor, lead: Lead = as_it_is) -> torch.Tensor:
        narrow = self.convs1[0].weight.dtype
        convolve = (
            _channels_last
            if narrow == torch.bfloat16 and x.device.type == "cpu"
            else nn.Module.__call__
        )
        for snake1, conv1, snake2, conv2 in zip(
            self.activations1, self.convs1, self.activations2, self.convs2
        ):
            y = convolve(conv1, lead(conv1, snake1(x).to(narrow))).to(x.dtype)
            x = convolve(conv2, lead(conv2, snake2(y).to(narrow))).to(x.dtype).add_(x)
        return x


def _channels_last(conv: nn.Conv1d, x: torch.Tensor) -> torch.Tensor:
    """x (batch, channels, time), in memory best as (time, channels): in bf16 on a CPU that takes
    0.7 of the time where channels are few.
    """
    wide = x.unsqueeze(2).contiguous(memory_format=torch.channels_last)
    out = F.conv2d(
        wide,
        conv.weight.unsqueeze(2),
        conv.bias,
        padding=(0, *conv.padding),
        dilation=(1, *conv.dilation),
    )
    return out.squeeze(2)


class Halves:
    """Work that another core may do meanwhile: in a pool of one thread, in order, or here when its
    result is asked for.
    """

    def __init__(self, pool: Executor | None):
        self._pool, self._futures = pool, []

    def elsewhere(
        self, work: Callable[..., torch.Tensor], *args: object
    ) -> Callable[[], torch.Tensor]:
        """What gives the result, or waits for it."""
        if self._pool is None:
            return partial(work, *args)
        self._futures.append(self._pool.submit(torch.inference_mode()(work), *args))
        return self._futures[-1].result

    def __enter__(self) -> Halves:
        return self

    def __exit__(self, *fault: object) -> None:
        wait(self._futures)  # when one half fails the other is not left behind


def _source_down(channels: int, rate: int) -> nn.Conv1d:
    """From the excitation's spectrum frames to a stage that is `rate` times slower."""
    return nn.Conv1d(
        FFT + 2, channels, 1 if rate == 1 else 2 * rate, stride=rate, padding=rate // 2
    )


class HiftLayers(nn.Module):
    """What all vocoders of this kind share.

    Theirs are `conv_pre`, `ups`, `source_downs`, `source_resblocks`, `resblocks`, `conv_post`.
    """

    beside: Executor | None = (
        # where half of the residual blocks are computed while the other half is; None: all in one
        # thread
        None
    )

    @classmethod
    def of(
        cls,
        dims: VocoderDims,
        state: Mapping[str, torch.Tensor],
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> Self:
        """From a state dict with upstream's key names, weight norm folded or not.

        Raises NotReady naming the first misfit.
        """
        with torch.device("meta"):
            model = cls(dims)
        state = {key.replace("generator.", ""): value for key, value in state.items()}
        model = assign(model, fold_weight_norm(state), "hift.pt").to(device=device, dtype=dtype)
        model.pack()
        return model

    def pack(self) -> None:
        weight = self.conv_pre.weight
        self.window = torch.hann_window(
            FFT, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device
        )

    def narrow(self, dtype: torch.dtype) -> Self:
        """The residual blocks' convolutions, nine tenths of the work, in `dtype`; f0, excitation,
        residual sums and the last layer, which makes size and phase of the spectrum, stay as they
        are. In bf16 the wave differs by 4 % rms (27 dB).
        """
        for block in (*self.resblocks, *self.source_resblocks):
            block.narrow(dtype)
        return self

    @property
    def dtype(self) -> torch.dtype:
        return self.conv_pre.weight.dtype

    def mixed(
        self, stage: int, x: torch.Tensor, spectrum: torch.Tensor, lead: Lead = as_it_is
    ) -> torch.Tensor:
        """x of a stage and the excitation's spectrum -> what goes to the next one"""
        x += self.source_features(stage, spectrum, lead)
        with Halves(self.beside) as halves:
            return self.shared(stage, x, halves.elsewhere, lead)

    def source_features(
        self, stage: int, spectrum: torch.Tensor, lead: Lead = as_it_is
    ) -> torch.Tensor:
        """What a stage adds of the excitation."""
        down = self.source_downs[stage]
        return self.source_resblocks[stage](down(lead(down, spectrum)), lead)

    def shared(
        self,
        stage: int,
        x: torch.Tensor,
        elsewhere: Callable[..., Callable[[], torch.Tensor]],
        lead: Lead = as_it_is,
    ) -> torch.Tensor:
        """The mean of a stage's blocks. The large one is as much work as both others."""
        *small, large = self.resblocks[
            stage * len(BLOCK_KERNELS) : (stage + 1) * len(BLOCK_KERNELS)
        ]
        pending_blocks = [elsewhere(block, x, lead) for block in small]
        last = large(x, lead)
        return (sum(other() for other in pending_blocks) + last) / len(BLOCK_KERNELS)

    def spectrum_of(self, x: torch.Tensor) -> torch.Tensor:
        """What the last layer gives, (batch, 18, n) -> complex (batch, 9, n)"""
        bins = FFT // 2 + 1
        x = x.to(self.window.dtype)
        size, phase = x[:, :bins].exp().clamp(max=100.0), x[:, bins:].sin()
        return torch.complex(size * phase.cos(), size * phase.sin())


class WaveDecoder(HiftLayers):
    """Layers under the published key names; the vocoder model adds f0 and excitation to them."""

    def __init__(self, dims: VocoderDims):
        super().__init__()
        base, stages, rates, kernels = (
            dims.base_channels,
            range(len(dims.up_rates)),
            dims.up_rates,
            dims.up_kernels,
        )
        widths = [base >> (i + 1) for i in stages]
        self.conv_pre = nn.Conv1d(MEL_BANDS, base, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(
                base >> i, widths[i], kernels[i], rates[i], padding=(kernels[i] - rates[i]) // 2
            )
            for i in stages
        )
        self.source_downs = nn.ModuleList(
            _source_down(widths[i], prod(rates[i + 1 :])) for i in stages
        )
        self.source_resblocks = nn.ModuleList(
            ResBlock(widths[i], dims.source_kernels[i]) for i in stages
        )
        self.resblocks = nn.ModuleList(
            ResBlock(widths[i], kernel) for i in stages for kernel in BLOCK_KERNELS
        )
        self.conv_post = nn.Conv1d(widths[-1], FFT + 2, 7, padding=3)

    def decode(self, mel: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """mel (1, 80, frames), source (1, 1, n) -> (n,) within +-0.99; n samples are the frames'
        (480 each in CosyVoice2)
        """
        wave = torch.istft(self.shaped(mel, source), FFT, FFT_HOP, window=self.window)
        return wave[0].clamp(-LIMIT, LIMIT)

    def shaped(self, mel: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """mel (batch, 80, frames), source (batch, 1, n) -> the wave's complex spectrum (batch, 9, n
        / 4 + 1)
        """
        spectrum = torch.stft(
            source[:, 0].to(self.window), FFT, FFT_HOP, window=self.window, return_complex=True
        )
        spectrum = torch.cat([spectrum.real, spectrum.imag], 1).to(mel.dtype)
        with Halves(self.beside) as halves:
            source_parts = [
                halves.elsewhere(self.source_features, i, spectrum) for i in range(len(self.ups))
            ]
            x = self.conv_pre(mel)
            for i, up in enumerate(self.ups):
                x = up(F.leaky_relu(x, 0.1))
                if i == len(self.ups) - 1:
                    x = F.pad(x, (1, 0), "reflect")  # the centred STFT has one frame more
                x += source_parts[i]()
                x = self.shared(
                    i, x, halves.elsewhere if i else partial
                )  # at the first stage the excitation of all is still made elsewhere
            return self.spectrum_of(self.conv_post(F.leaky_relu(x, 0.01)))
