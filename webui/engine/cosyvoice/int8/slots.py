"""Keys and values of all running requests: one slot each in arrays that the network reads and
writes in place. Blind to the network.
"""

from __future__ import annotations

import weakref
from collections import deque
from threading import RLock
from typing import Protocol

import numpy as np

FIRST_SLOTS, FIRST_POSITIONS = 4, 512


class SlotDims(Protocol):
    layers: int
    kv_heads: int

    @property
    def head_size(self) -> int: ...

    @property
    def rows(self) -> int:
        """Of the head."""

    def cache_bytes(self, tokens: int, bytes_per_value: int) -> int: ...


class Slots:
    """Per layer and kind an array (slots, kv_heads, capacity, head_size) fp32.

    Memory is taken when positions are first written.

    `lock` is held by whoever reads or writes the arrays: growing replaces them. `n_grown`
    counts that, so that views can be renewed.
    """

    def __init__(self, dims: SlotDims):
        self.dims, self.lock = dims, RLock()
        self.capacity, self.count, self.n_grown = FIRST_POSITIONS, FIRST_SLOTS, 0
        self._free = list(range(self.count))
        self._given_back: deque[int] = (
            deque()
        )  # appended by the garbage collector, in any thread, whatever is locked
        self.lengths = [0] * self.count
        self.layers = self._arrays()

    def _arrays(self) -> list[list[np.ndarray]]:
        d = self.dims
        shape = self.count, d.kv_heads, self.capacity, d.head_size
        return [[np.zeros(shape, np.float32) for _ in range(2)] for _ in range(d.layers)]

    def take(self) -> int:
        """The lowest free slot: slots in use lie close together."""
        while self._given_back:
            self._free.append(self._given_back.popleft())
        if not self._free:
            self._free = list(range(self.count, 2 * self.count))
            self._grow(2 * self.count, self.capacity)
        slot = min(self._free)
        self._free.remove(slot)
        self.lengths[slot] = 0
        return slot

    def give_back(self, slot: int) -> None:
        self._given_back.append(slot)

    def make_room(self, positions: int) -> None:
        """For a slot with `positions` filled.

        One more stays free always: an idle slot between busy ones is written there.
        """
        if positions >= self.capacity:
            self._grow(self.count, max(positions + 1, 2 * self.capacity))

    def _grow(self, count: int, capacity: int) -> None:
        old = self.layers
        used = len(self.lengths), max(self.lengths)
        self.count, self.capacity = count, capacity
        self.lengths += [0] * (count - len(self.lengths))
        self.layers = self._arrays()
        for new_pair, old_pair in zip(self.layers, old, strict=True):
            for new, values in zip(new_pair, old_pair, strict=True):
                new[: used[0], :, : used[1]] = values[:, :, : used[1]]
        self.n_grown += 1

    def read(self, slot: int) -> np.ndarray:
        """A copy of what a slot holds: (layers, 2, kv_heads, length, head_size)."""
        stop = self.lengths[slot]
        return np.stack(
            [np.stack([values[slot, :, :stop] for values in pair]) for pair in self.layers]
        )

    def write(self, slot: int, content: np.ndarray) -> None:
        stop = content.shape[3]
        self.make_room(stop)
        for pair, layer_content in zip(self.layers, content, strict=True):
            for values, layer_values in zip(pair, layer_content, strict=True):
                values[slot, :, :stop] = layer_values
        self.lengths[slot] = stop


class SlotKVCache:
    """One request's past.

    At rest (a prefix) it is an array of its own of the size of its content; the first step gives it
    a slot, which it keeps until nobody holds the past any more.
    """

    def __init__(self, slots: Slots, content: np.ndarray | None = None):
        d = slots.dims
        self._slots, self._slot = slots, None
        self._content = (
            np.zeros((d.layers, 2, d.kv_heads, 0, d.head_size), np.float32)
            if content is None
            else content
        )

    @property
    def length(self) -> int:
        return self._content.shape[3] if self._slot is None else self._slots.lengths[self._slot]

    @property
    def nbytes(self) -> int:
        """At rest its own, else the positions filled."""
        return self._slots.dims.cache_bytes(self.length, 4)

    def seat(self) -> int:
        """The slot of this past, taken when it has none. Under the lock of the slots."""
        if self._slot is None:
            slot = self._slots.take()
            weakref.finalize(self, self._slots.give_back, slot).atexit = False
            self._slots.write(slot, self._content)
            self._slot, self._content = slot, None
        return self._slot

    def reserve(self, new: int) -> None:
        with self._slots.lock:
            self._slots.make_room(self.length + new)

    def fork(self, room: int = 0) -> SlotKVCache:
        """The prefix's fork shares its content until its first step."""
        with self._slots.lock:
            self._slots.make_room(self.length + room)
            return SlotKVCache(
                self._slots, self._content if self._slot is None else self._slots.read(self._slot)
            )

    def rest(self) -> SlotKVCache:
        """The same past out of its slot."""
        with self._slots.lock:
            return SlotKVCache(self._slots, self._slots.read(self.seat()))
