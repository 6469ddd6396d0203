"""How an exported form is compared with what it was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


class ExportFault(Exception):
    """What was exported is not what the model computes, or cannot be read. A sentence."""


def difference(got: Tensor, want: Tensor) -> float:
    """Largest absolute difference; infinite where the shapes or the infinities differ, and where a
    value is no number.
    """
    if got.shape != want.shape or not torch.equal(got.isinf(), want.isinf()):
        return math.inf
    finite = want.isfinite()
    parts = (got.double() - want.double())[finite].abs()
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

    def add(self, what: str, got: Tensor, want: Tensor) -> None:
        """Raises nothing: `end` does, when all lines are said."""
        found = difference(got, want)
        finite = want[want.isfinite()]
        scale = max(1.0, float(finite.abs().max()) if finite.numel() else 0.0)
        is_good = found <= (self.tolerance * scale if want.is_floating_point() else 0)
        self.count, self.largest = self.count + 1, max(self.largest, found)
        if not is_good:
            self.failed.append(what)
        print(f"{what:<36} largest difference {found:9.2e}  {'ok' if is_good else 'DIFFERS'}")

    def end(self, title: str) -> float:
        """The largest difference. Raises ExportFault naming what differs."""
        if not self.count:
            raise ExportFault(f"{title} has nothing that can be compared.")
        if self.failed:
            raise ExportFault(f"{title} differs from the model in: {', '.join(self.failed)}.")
        return self.largest
