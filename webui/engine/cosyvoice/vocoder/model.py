"""The vocoder model: mel to wave. Weights only; what a stream remembers is in stream.py."""

from __future__ import annotations

import torch

from .dims import VocoderDims
from .f0 import F0Predictor
from .hift import WaveDecoder
from .source import Source, noise_at


class Vocoder(WaveDecoder):
    excitation: type[Source] = Source

    def __init__(self, dims: VocoderDims):
        super().__init__(dims)
        self.dims = dims
        self.f0_predictor = F0Predictor(dims.f0_cond_channels)
        self.m_source = self.excitation(dims)

    def f0(self, mel: torch.Tensor) -> torch.Tensor:
        """mel (1, 80, frames) -> (frames,) on the CPU, Hz"""
        f0 = self.f0_predictor(mel)[0]
        return f0.to(torch.promote_types(f0.dtype, torch.float32)).cpu()

    @torch.inference_mode()
    def whole(self, mel: torch.Tensor, seed: int | None = 0) -> torch.Tensor:
        """One shot: mel (frames, 80) -> (dims.frame_samples * frames,). seed None: no noise."""
        mel = mel.to(self.conv_pre.weight).mT[None]
        noise = None if seed is None else noise_at(seed, 0, self.dims.frame_samples * mel.shape[2])
        return self.decode(
            mel, self.m_source(self.f0(mel), noise, self.m_source.start(seed)).to(mel)
        )
