"""Sizes of the flow model as data.

Defaults are CosyVoice2-0.5B; the constants below come from training and never vary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

MEL_BANDS = 80
FRAMES_PER_ID = 2
LOOKAHEAD_IDS = 3
EULER_STEPS = 10  # as published; FlowDims.euler_steps is what a model uses
GUIDANCE = 0.7
MAX_FRAMES = 15000  # length of the fixed noise, prompt included
TIME_WIDTH = (
    4 * MEL_BANDS
)  # x, mu, speaker and cond side by side; also the width of the time sinusoid


class EstimatorSizes:
    """What a flow's memory needs to know of its estimator: euler_steps, estimator_layers (of
    attention), estimator_heads, estimator_head_dim.
    """

    @classmethod
    def of(cls, config: Mapping[str, object]) -> Self:
        """From a mapping of scalars; names it does not know are left alone."""
        return cls(
            **{field.name: int(config[field.name]) for field in fields(cls) if field.name in config}
        )

    def bytes_per_frame(self, element_bytes: int = 4) -> int:
        """Estimator K/V kept per mel frame: every Euler step, both guidance rows.

        For memory plans.
        """
        return (
            self.euler_steps
            * 2
            * self.estimator_layers
            * 2
            * self.estimator_heads
            * self.estimator_head_dim
            * element_bytes
        )


@dataclass(frozen=True)
class FlowDims(EstimatorSizes):
    input_size: int = 512
    encoder_dim: int = 512
    encoder_heads: int = 8
    encoder_ffn_dim: int = 2048
    encoder_blocks: int = 6
    up_encoder_blocks: int = 4
    chunk_size: int = 25
    estimator_channels: int = 256
    estimator_heads: int = 8
    estimator_head_dim: int = 64
    estimator_n_blocks: int = 4
    estimator_mid_blocks: int = 12
    spk_embed_dim: int = 192
    speech_token_size: int = 6561
    euler_steps: int = EULER_STEPS

    @property
    def estimator_layers(self) -> int:
        """Transformer blocks of one estimator evaluation (56 in the real model)."""
        return self.estimator_n_blocks * (self.estimator_mid_blocks + 2)
