"""Values between host and device without waiting: pinned host memory, asynchronous copies, one
event per copy. Blind to what they mean.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

DEPTH = 4  # copies that may be under way at once


class _Host:
    """One piece of host memory, like a device tensor, and the moment at which the device is done
    with it.
    """

    def __init__(self, like: Tensor):
        self.tensor = torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        self.array: np.ndarray = self.tensor.numpy()
        self._event = torch.cuda.Event() if like.is_cuda else None

    def mark(self) -> None:
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


class Upload:
    """Fills one device buffer.

    `array` is host memory that no copy reads any more; what is in it is old: write all that counts.
    """

    def __init__(self, target: Tensor):
        self._target = target
        self._hosts = [_Host(target) for _ in range(DEPTH if target.is_cuda else 1)]
        self._turn = 0

    def array(self) -> np.ndarray:
        host = self._hosts[self._turn]
        host.wait()
        return host.array

    def send(self, count: int | None = None) -> None:
        """The first `count` values of a flat buffer, or all."""
        host = self._hosts[self._turn]
        self._target[:count].copy_(host.tensor[:count], non_blocking=True)
        host.mark()
        self._turn = (self._turn + 1) % len(self._hosts)


class Arriving:
    """A copy on its way to the host. It must be taken before DEPTH more are under way."""

    def __init__(self, host: _Host, count: int | None):
        self._host, self._count = host, count

    def take(self) -> np.ndarray:
        """Waits for the copy; an array of the caller's own."""
        self._host.wait()
        return self._host.array[: self._count].copy()


class Download:
    """Reads one device buffer, as it is when the device gets there."""

    def __init__(self, source: Tensor):
        self._source = source
        self._hosts = [_Host(source) for _ in range(DEPTH)]
        self._turn = 0

    def start(self, count: int | None = None) -> Arriving:
        """The first `count` values of a flat buffer, or all."""
        host = self._hosts[self._turn]
        self._turn = (self._turn + 1) % DEPTH
        host.tensor[:count].copy_(self._source[:count], non_blocking=True)
        host.mark()
        return Arriving(host, count)
