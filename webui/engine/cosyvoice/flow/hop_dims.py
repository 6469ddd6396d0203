"""Sizes of the flow as data. Defaults are CosyVoice-300M."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .dims import EULER_STEPS, EstimatorSizes


@dataclass(frozen=True)
class HopDims(EstimatorSizes):
    input_size: int = 512
    encoder_dim: int = 512
    encoder_heads: int = 8
    encoder_ffn_dim: int = 2048
    encoder_blocks: int = 6
    estimator_channels: int = 256
    estimator_heads: int = 8
    estimator_head_dim: int = 64
    estimator_n_blocks: int = 4
    estimator_mid_blocks: int = 12
    spk_embed_dim: int = 192
    speech_token_size: int = 4096
    euler_steps: int = EULER_STEPS

    @classmethod
    def of(cls, config: Mapping[str, object]) -> HopDims:
        """From a mapping of scalars; a list of equal channels counts as one."""
        channels = config.get("estimator_channels", cls.estimator_channels)
        return super().of(
            {
                **config,
                "estimator_channels": channels[0]
                if isinstance(channels, list | tuple)
                else channels,
            }
        )

    @property
    def estimator_layers(self) -> int:
        """Transformer blocks of one estimator evaluation (64 in the real model)."""
        return self.estimator_n_blocks * (self.estimator_mid_blocks + 4)
