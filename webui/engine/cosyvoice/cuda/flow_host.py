"""A voice's rows of the flow's pools in the host's memory, while others need the room: bits out,
the same bits in.

Copies stand in the stream of the flow's own work, so nobody waits for them and rows may be given
away at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .flow_work import FlowBuffers


class HostRows:
    """What lies in `units` and in `slot`, copied out.

    Pinned where the device copies by itself; an Euler step at a time, so that the copy on the way
    needs little room.
    """

    @torch.inference_mode()
    def __init__(self, buffers: FlowBuffers, units: list[int], slot: int):
        self.count = len(units)
        at = torch.tensor(units, dtype=torch.long, device=buffers.rows.device)
        self._rows = [_to_host(pool.index_select(1, at)) for pool in buffers.by_unit]
        self._slots = [_to_host(part[slot]) for part in buffers.by_slot]

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in (*self._rows, *self._slots))

    @torch.inference_mode()
    def back(self, buffers: FlowBuffers, units: list[int], slot: int) -> None:
        """Into as many units, and a slot, wherever they are now."""
        at = torch.tensor(units, dtype=torch.long, device=buffers.rows.device)
        for pool, rows in zip(buffers.by_unit, self._rows, strict=True):
            pool.index_copy_(1, at, rows.to(pool.device, non_blocking=True))
        for part, kept in zip(buffers.by_slot, self._slots, strict=True):
            part[slot].copy_(kept, non_blocking=True)


def _to_host(values: Tensor) -> Tensor:
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
    return host.copy_(values, non_blocking=True)
