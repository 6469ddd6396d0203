"""Sizes of the vocoder as data. Defaults are CosyVoice2-0.5B; everything that is the same in every checkpoint is a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

MEL_BANDS = 80
RATE_HZ = 24000
HARMONICS = 9  # the fundamental and eight above it
SINE_LEVEL = 0.1
VOICED_HZ = 10.0
VOICED_NOISE = 0.003
UNVOICED_NOISE = SINE_LEVEL / 3
UP_RATES = (8, 5, 3)
UP_KERNELS = (16, 11, 7)
BLOCK_KERNELS = (3, 7, 11)
SOURCE_KERNELS = (7, 7, 11)
DILATIONS = (1, 3, 5)
FFT, FFT_HOP = 16, 4
FRAME_SAMPLES = UP_RATES[0] * UP_RATES[1] * UP_RATES[2] * FFT_HOP  # 480: 20 ms
LIMIT = 0.99


@dataclass(frozen=True)
class VocoderDims:
    base_channels: int = 512
    f0_cond_channels: int = 512

    def __post_init__(self):
        if self.base_channels % 2 ** len(UP_RATES):
            raise ValueError(f"base_channels {self.base_channels} must halve {len(UP_RATES)} times")

    @classmethod
    def of(cls, config: Mapping[str, object]) -> VocoderDims:
        """From a mapping of scalars; names it does not know are left alone."""
        return cls(**{field.name: int(config[field.name]) for field in fields(cls) if field.name in config})
