"""What voices and requests remember of the flow, on the device: one pool of rows for all of them,
found through tables of row numbers.

A unit is one id (two frames). A voice's units are read by all its streams and copied by none. Knows
places; blind to the arithmetic.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from ..flow.conv import TimeConv
from ..flow.dims import FRAMES_PER_ID
from ..flow.kv_cache import attend
from .capture import Allocator

SCRATCH = 0  # the unit, and the slot, that padding writes to; never given to anyone
ROWS_PER_UNIT = 2 * FRAMES_PER_ID  # for each of the two guidance rows


class Memory(Protocol):
    """What a past needs of the flow whose memory it lies in (flow.CapturedFlow)."""

    units: Allocator
    slots: Allocator
    tails: TailStore

    @property
    def bytes_per_unit(self) -> int: ...


class PooledPast:
    """What one voice or one request remembers, in the place of its EstimatorCaches: units of its
    own behind those of its voice, and a slot. It is given back by `release`, or when it is lost.
    """

    @torch.inference_mode()
    def __init__(self, flow: Memory, voice: PooledPast | None = None):
        """voice: a request's. Raises EngineFault `out_of_memory`."""
        self._flow, self._voice, self.own = flow, voice, []
        (self.slot,) = flow.slots.take(1)
        self._leave = weakref.finalize(self, _give_back, flow, self.slot, self.own)
        tails = flow.tails.data
        tails[self.slot].zero_() if voice is None else tails[self.slot].copy_(tails[voice.slot])

    @property
    def units(self) -> list[int]:
        return self.own if self._voice is None else [*self._voice.own, *self.own]

    def freeze(self) -> None:
        """Its forks only read it."""

    def fork(self) -> PooledPast:
        return PooledPast(self._flow, self)

    def release(self) -> None:
        self._leave()

    @property
    def bytes(self) -> int:
        return len(self.own) * self._flow.bytes_per_unit

    @property
    def shared_bytes(self) -> int:
        """At least a slot's share of the pool: voices end by bytes, before slots do."""
        share = self._flow.units.count // self._flow.slots.count
        return max(len(self.own), share) * self._flow.bytes_per_unit


def _give_back(flow: Memory, slot: int, units: list[int]) -> None:
    flow.slots.give_back([slot])
    flow.units.give_back(units)


class PooledKv:
    """Looks like a KVStore to the layers of one Euler step: writes the new rows into the pool,
    reads past and new ones by number.

    pool (layers, rows, 2 * heads * width); new (batch, n), seen (batch, reach + n) row numbers;
    starts (batch,): the positions of the first new ones, for layers that ask.
    """

    def __init__(self, pool: Tensor, new: Tensor, key_rows: Tensor, starts: Tensor):
        self._pool, self._new, self._key_rows, self.starts = pool, new, key_rows, starts

    def room_for(self, new: int) -> None:
        """Nothing to do, as in `advance`: the row numbers say it all."""

    def advance(self, new: int) -> None:
        pass

    def attend(self, layer: int, q: Tensor, kv: Tensor, mask: Tensor | None) -> Tensor:
        """kv (2, batch, heads, n, width)"""
        _, batch, heads, new, width = kv.shape
        rows = self._pool[layer]
        fresh = kv.permute(1, 3, 0, 2, 4).reshape(batch * new, -1)
        rows.index_copy_(0, self._new.flatten(), fresh.to(rows.dtype))
        gathered = rows.index_select(0, self._key_rows.flatten()).to(kv.dtype)
        keys, values = gathered.view(batch, -1, 2, heads, width).permute(2, 0, 3, 1, 4)
        return attend(q, [(keys, values)], mask)


class GatheredTails:
    """Looks like a ConvCache to one Euler step: `before[slot]` (batch, rows, channels) stand in
    front, what follows row `count` of each is `after`.
    """

    def __init__(self, before: list[Tensor], count: Tensor):
        self._before, self.after = before, list(before)
        rows = torch.arange(before[0].shape[1], device=count.device)
        self._rows = (count[:, None] + rows)[..., None]

    def lead(self, slot: int, x: Tensor, width: int) -> Tensor:
        if width != self._rows.shape[1]:
            raise ValueError(f"a convolution that looks back on {width} rows")
        joined = torch.cat([self._before[slot], x], 1)
        self.after[slot] = joined.gather(1, self._rows.expand(-1, -1, x.shape[2]))
        return joined


class TailStore:
    """Past rows of all convolutions of an estimator, (slots, steps, guidance rows, rows, all
    channels): one gather and one write per call.
    """

    def __init__(
        self, estimator: nn.Module, slots: int, steps: int, dtype: torch.dtype, device: torch.device
    ):
        self._channels, rows = looking_back(estimator)
        shape = slots, steps, 2, rows, sum(self._channels)
        self.data = torch.zeros(shape, dtype=dtype, device=device)

    def of(self, slots: Tensor, count: Tensor) -> list[GatheredTails]:
        """By step. count (2 * batch,): new rows that are real."""
        steps = self.data.index_select(0, slots).unbind(1)
        return [
            GatheredTails(list(step.flatten(0, 1).split(self._channels, -1)), count)
            for step in steps
        ]

    def keep(self, slots: Tensor, steps: Sequence[GatheredTails]) -> None:
        after = torch.stack([torch.cat(step.after, -1) for step in steps])
        self.data.index_copy_(0, slots, after.unflatten(1, (-1, 2)).transpose(0, 1))


def looking_back(estimator: nn.Module) -> tuple[list[int], int]:
    """Channels of its convolutions, by slot, and on how many rows they look back."""
    convs = sorted((m for m in estimator.modules() if hasattr(m, "slot")), key=lambda m: m.slot)
    dense = [isinstance(conv, TimeConv) for conv in convs]
    widths = [
        conv.matrix.shape[1] // conv.kernel if is_dense else conv.in_channels
        for conv, is_dense in zip(convs, dense, strict=True)
    ]
    kernels = [
        conv.kernel if is_dense else conv.kernel_size[0]
        for conv, is_dense in zip(convs, dense, strict=True)
    ]
    return widths, max(kernels) - 1


def visible(reach: int, past: Tensor, ends: Tensor, like: Tensor) -> Tensor:
    """Additive mask (batch, 1, n, reach + n): of the past columns the last `past` (batch,), of the
    new ones those below `ends` (batch, n).
    """
    batch, new = ends.shape
    old = torch.arange(reach, device=past.device) >= reach - past[:, None]
    fresh = torch.arange(new, device=past.device) < ends[..., None]
    mask = torch.cat([old[:, None].expand(batch, new, reach), fresh], -1)[:, None]
    return like.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)


def rows_of(units: Tensor) -> Tensor:
    """Unit numbers (batch, n) -> row numbers (2 * batch, 2n): neighbouring rows of the batch are
    the two guidance rows.
    """
    parts = torch.arange(ROWS_PER_UNIT, device=units.device).view(FRAMES_PER_ID, 2).T[:, None]
    return (units[:, None, :, None] * ROWS_PER_UNIT + parts).flatten(2).flatten(0, 1)
