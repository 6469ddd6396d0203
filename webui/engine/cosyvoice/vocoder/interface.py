"""What the scheduler sees of the vocoder."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class WaveStream(Protocol):
    """A stream of the vocoder."""

    def push(self, mel: Tensor, final: bool = False) -> Tensor:
        """mel (n, 80), the next frames (n may be 0) -> float32 samples (m,) on the CPU that are
        final now. `final` gives the rest.
        """
