"""Where the flow's memory lies on the device: one pool of rows for all streams and voices, found
through tables of row numbers.

A unit is one id (two frames). A voice's units are read by all its streams and copied by none. Knows
places; blind to the arithmetic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor

from ....errors import EngineFault
from ..flow.dims import FRAMES_PER_ID
from ..flow.kv_cache import attend

SCRATCH = 0  # the unit, and the slot, that padding writes to; never given to anyone


class UnitAllocator:
    """Numbers from 1 up, to be taken and given back; in any thread, even from a finaliser."""

    def __init__(self, count: int, what: tuple[str, str]):
        self.count, self._what = count, what
        self._free = deque(range(1, count + 1))

    def take(self, count: int) -> list[int]:
        """Raises EngineFault `out_of_memory` when there are not so many."""
        taken: list[int] = []
        try:
            for _ in range(count):
                taken.append(self._free.popleft())
        except IndexError as error:
            self.give_back(taken)
            raise EngineFault(
                f"The GPU's memory for {self._what[0]} is used up. Try again in a moment.",
                f"显存中{self._what[1]}的空间已用完，请稍后再试。",
                code="out_of_memory",
                retry_after_s=2.0,
            ) from error
        return taken

    def give_back(self, numbers: Iterable[int]) -> None:
        self._free.extend(numbers)

    @property
    def in_use(self) -> int:
        return self.count - len(self._free)


class PooledKv:
    """Looks like a KVStore to the layers of one work: writes the new rows into the pool, reads past
    and new ones by number.

    pool (layers, rows, 2 * heads * width); new (batch, n), past (batch, reach) row numbers, past
    ones at the right end. starts (batch,): the positions of the first new ones, for layers that
    ask.
    """

    def __init__(self, pool: Tensor, past: Tensor, new: Tensor, starts: Tensor | None = None):
        self._pool, self._reach, self.starts = pool, past.shape[1], starts
        self._new, self._all = new.flatten(), torch.cat([past, new], 1).flatten()

    def __len__(self) -> int:
        return self._reach

    def room_for(self, new: int) -> None:
        pass

    def advance(self, new: int) -> None:
        pass

    def attend(self, layer: int, q: Tensor, kv: Tensor, mask: Tensor | None) -> Tensor:
        return attend(q, self.put(layer, kv), mask)

    def put(self, layer: int, kv: Tensor) -> list[tuple[Tensor, Tensor]]:
        """kv (2, batch, heads, n, width) -> keys and values (batch, heads, reach + n, width)"""
        _, batch, heads, new, width = kv.shape
        rows = self._pool[layer]
        rows.index_copy_(
            0, self._new, kv.permute(1, 3, 0, 2, 4).reshape(batch * new, -1).to(rows.dtype)
        )
        seen = (
            rows.index_select(0, self._all)
            .to(kv.dtype)
            .view(batch, self._reach + new, 2, heads, width)
        )
        keys, values = seen.permute(2, 0, 3, 1, 4)
        return [(keys, values)]


class GatheredTails:
    """Looks like conv.Past to one work: `before[slot]` (batch, rows, channels) stand in front, what
    follows row `count` of each is `after`.
    """

    def __init__(self, before: list[Tensor], count: Tensor):
        self._before, self.after = before, list(before)
        self._width = before[0].shape[1]
        self._rows = (count[:, None] + torch.arange(self._width, device=count.device))[..., None]

    def lead(self, slot: int, x: Tensor, width: int) -> Tensor:
        if width != self._width:
            raise ValueError(f"a convolution that looks back on {width} rows")
        joined = torch.cat([self._before[slot], x], 1)
        self.after[slot] = joined.gather(1, self._rows.expand(-1, -1, x.shape[2]))
        return joined


class TailStore:
    """Tails of all convolutions, each of `width` rows, (slots, steps, guidance rows, width, all
    channels): one gather and one write per call.
    """

    def __init__(
        self,
        channels: list[int],
        width: int,
        slots: int,
        steps: int,
        rows: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ):
        self._channels = channels
        self.data = torch.zeros(
            slots, steps, rows, width, sum(channels), dtype=dtype, device=device
        )

    def of(self, slots: Tensor) -> Tensor:
        return self.data.index_select(0, slots)

    def split(self, gathered: Tensor, step: int) -> list[Tensor]:
        """Per convolution (batch * guidance rows, width, channels)"""
        return list(gathered[:, step].flatten(0, 1).split(self._channels, -1))

    def keep(self, slots: Tensor, after: list[list[Tensor]]) -> None:
        """after: by step, by convolution"""
        joined = torch.stack([torch.cat(step, -1) for step in after], 0)
        steps, _, width, channels = joined.shape
        self.data.index_copy_(
            0, slots, joined.view(steps, len(slots), -1, width, channels).transpose(0, 1)
        )


def visible(reach: int, past: Tensor, ends: Tensor, like: Tensor) -> Tensor:
    """Additive mask (batch, 1, n, reach + n): of the past columns the last `past` (batch,), of the
    new ones those below `ends` (batch, n).
    """
    batch, new = ends.shape
    old = torch.arange(reach, device=past.device) >= reach - past[:, None]
    fresh = torch.arange(new, device=past.device) < ends[..., None]
    seen = torch.cat([old[:, None].expand(batch, new, reach), fresh], -1)[:, None]
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(
        ~seen, -torch.inf
    )


def frames_of(units: Tensor) -> Tensor:
    """Unit numbers (batch, n) -> frame numbers (batch, 2n)"""
    return (
        units[..., None] * FRAMES_PER_ID + torch.arange(FRAMES_PER_ID, device=units.device)
    ).flatten(1)


def pairs_of(frames: Tensor) -> Tensor:
    """Frame numbers (batch, n) -> (2 * batch, n): one row number for each of the two guidance
    rows
    """
    return (frames[:, None] * 2 + torch.arange(2, device=frames.device)[:, None]).flatten(0, 1)
