"""Sizes of the flow as data.

Defaults are Fun-CosyVoice3-0.5B; the constants below come from training and never vary.
"""

from __future__ import annotations

from dataclasses import dataclass

from .dims import EULER_STEPS, EstimatorSizes

POSITION_KERNEL, POSITION_GROUPS = 31, 16
TIME_WIDTH = 256  # of the time's sinusoid
NORM_EPSILON = 1e-6
ROTARY_BASE = 10000.0


@dataclass(frozen=True)
class DitDims(EstimatorSizes):
    lookahead_channels: int = 1024
    dit_dim: int = 1024
    dit_depth: int = 22
    dit_heads: int = 16
    dit_head_dim: int = 64
    dit_ff_mult: int = 2
    chunk_size: int = 25
    spk_embed_dim: int = 192
    speech_token_size: int = 6561
    euler_steps: int = EULER_STEPS

    def __post_init__(self):
        if self.dit_dim % POSITION_GROUPS or self.dit_head_dim % 2:
            raise ValueError(
                f"dit_dim {self.dit_dim} must divide by {POSITION_GROUPS}, dit_head_dim"
                f" {self.dit_head_dim} by 2"
            )

    @property
    def estimator_layers(self) -> int:
        return self.dit_depth

    @property
    def estimator_heads(self) -> int:
        return self.dit_heads

    @property
    def estimator_head_dim(self) -> int:
        return self.dit_head_dim
