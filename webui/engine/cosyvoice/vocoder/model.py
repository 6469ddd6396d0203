"""The vocoder model: mel to 24 kHz wave. Weights only; what a stream remembers is in state.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..weights import assign, fold_weight_norm
from .decoder import WaveDecoder
from .dims import FRAME_SAMPLES, VocoderDims
from .f0 import F0Predictor
from .source import Source, noise_at


class Vocoder(WaveDecoder):
    def __init__(self, dims: VocoderDims):
        super().__init__(dims)
        self.dims = dims
        self.f0_predictor = F0Predictor(dims.f0_cond_channels)
        self.m_source = Source()

    @classmethod
    def of(cls, dims: VocoderDims, state: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float32, device: str = "cpu") -> Vocoder:
        """From a state dict with upstream's key names, weight norm folded or not. Raises NotReady naming the first misfit."""
        with torch.device("meta"):
            model = cls(dims)
        state = {key.replace("generator.", ""): value for key, value in state.items()}
        model = assign(model, fold_weight_norm(state), "hift.pt").to(device=device, dtype=dtype)
        model.pack()
        return model

    def narrow(self, dtype: torch.dtype) -> Vocoder:
        """The residual blocks' convolutions, nine tenths of the work, in `dtype`; f0, excitation, residual sums and the last layer, which makes
        size and phase of the spectrum, stay as they are. In bf16 the wave differs by 4 % rms (27 dB)."""
        for block in (*self.resblocks, *self.source_resblocks):
            block.narrow(dtype)
        return self

    @property
    def dtype(self) -> torch.dtype:
        return self.conv_pre.weight.dtype

    def f0(self, mel: torch.Tensor) -> torch.Tensor:
        """mel (1, 80, frames) -> (frames,) on the CPU, Hz"""
        f0 = self.f0_predictor(mel)
        return f0.to(torch.promote_types(f0.dtype, torch.float32)).cpu()

    @torch.inference_mode()
    def whole(self, mel: torch.Tensor, seed: int | None = 0) -> torch.Tensor:
        """One shot: mel (frames, 80) -> (480 * frames,). seed None: no noise."""
        mel = mel.to(self.conv_pre.weight).mT[None]
        noise = None if seed is None else noise_at(seed, 0, FRAME_SAMPLES * mel.shape[2])
        return self.decode(mel, self.m_source(self.f0(mel), noise).to(mel))
