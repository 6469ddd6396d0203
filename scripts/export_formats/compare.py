"""How an exported form is compared with what it was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


class ExportFault(Exception):
    """What was exported is not what the model computes, or cannot be read. A sentence."""


def difference(actual: Tensor, expected: Tensor) -> float:
    """Largest absolute difference; infinite where the shapes or the infinities differ, and where a
    value is no number.
    """
    if actual.shape != expected.shape or not torch.equal(actual.isinf(), expected.isinf()):
        return math.inf
    finite = expected.isfinite()
    parts = (actual.double() - expected.double())[finite].abs()
    largest = float(parts.max()) if parts.numel() else 0.0
    return math.inf if math.isnan(largest) else largest


@dataclass
class Comparison:
    """Lines of a check as they are found. tolerance: relative to the largest value compared, from
    1 up; whole numbers must be equal.
    """

    tolerance: float
    count: int = 0
    largest: float = 0.0
    failed: list[str] = field(default_factory=list)

    def add(self, label: str, actual: Tensor, expected: Tensor) -> None:
        """Raises nothing: `end` does, when all lines are said."""
        largest = difference(actual, expected)
        finite = expected[expected.isfinite()]
        scale = max(1.0, float(finite.abs().max()) if finite.numel() else 0.0)
        is_good = largest <= (self.tolerance * scale if expected.is_floating_point() else 0)
        self.count, self.largest = self.count + 1, max(self.largest, largest)
        if not is_good:
            self.failed.append(label)
        print(f"{label:<36} largest difference {largest:9.2e}  {'ok' if is_good else 'DIFFERS'}")

    def end(self, title: str) -> float:
        """The largest difference. Raises ExportFault naming what differs."""
        if not self.count:
            raise ExportFault(f"{title} has nothing that can be compared.")
        if self.failed:
            raise ExportFault(f"{title} differs from the model in: {', '.join(self.failed)}.")
        return self.largest
