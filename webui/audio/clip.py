"""A piece of mono sound and its rate. Knows nothing of files, voices or the web."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Clip:
    """samples: float32 mono, (n,), finite, within -1..1; rate: Hz. channels and source_hz tell what
    the file had before the mixdown,
    is_first_track that it had further sound tracks, which are left out.
    """

    samples: np.ndarray
    rate: int
    channels: int = 1
    source_hz: int = 0  # 0: the same as `rate`
    is_first_track: bool = False

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.rate

    def with_samples(self, samples: np.ndarray) -> Clip:
        """The same origin, other sound."""
        return replace(self, samples=np.ascontiguousarray(samples, np.float32))
