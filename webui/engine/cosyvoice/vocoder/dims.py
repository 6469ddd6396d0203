"""Sizes of the vocoder as data.

Defaults are CosyVoice2-0.5B; everything that is the same in every generation is a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

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
FRAME_SAMPLES = prod(UP_RATES) * FFT_HOP  # 480: 20 ms
LIMIT = 0.99


@dataclass(frozen=True)
class VocoderDims:
    """rate_hz and the tuples (of each stage) are those of a generation, the two sizes those of a
    checkpoint.
    """

    base_channels: int = 512
    f0_cond_channels: int = 512
    rate_hz: int = RATE_HZ
    up_rates: tuple[int, ...] = UP_RATES
    up_kernels: tuple[int, ...] = UP_KERNELS
    source_kernels: tuple[int, ...] = SOURCE_KERNELS

    def __post_init__(self):
        if self.base_channels % 2 ** len(self.up_rates):
            raise ValueError(
                f"base_channels {self.base_channels} must halve {len(self.up_rates)} times"
            )

    @classmethod
    def of(cls, config: Mapping[str, object]) -> VocoderDims:
        """From a mapping of scalars; names it does not know are left alone."""
        return cls(**sizes(config))

    @property
    def frame_samples(self) -> int:
        return prod(self.up_rates) * FFT_HOP


def sizes(config: Mapping[str, object]) -> dict[str, int]:
    """What differs within a generation."""
    return {
        name: int(config[name]) for name in ("base_channels", "f0_cond_channels") if name in config
    }
