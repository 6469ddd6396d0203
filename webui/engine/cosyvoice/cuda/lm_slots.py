"""Which request sits in which slot of the language model's buffers.

Knows slots and lengths; blind to what is computed in them.
"""

from __future__ import annotations

import heapq
import weakref
from collections import deque
from typing import Any, Protocol

from torch import Tensor

from ....errors import Busy, EngineFault


class Slots:
    """Free slot numbers, lowest first, so that the slots in use stay a short prefix of all."""

    def __init__(self, count: int):
        self.count = count
        self._free = list(range(count))
        self._returned: deque[int] = (
            deque()
        )  # a past may be collected in any thread, even inside `take`
        self.users: weakref.WeakValueDictionary[int, SlotKVCache] = weakref.WeakValueDictionary()

    def take(self) -> int:
        self._tidy()
        if not self._free:
            raise Busy(
                f"All {self.count} places of the language model are taken.",
                f"语言模型的 {self.count} 个位置都被占用。",
                retry_after_s=2.0,
            )
        return heapq.heappop(self._free)

    def give_back(self, slot: int) -> None:
        self._returned.append(slot)

    def _tidy(self) -> None:
        while self._returned:
            heapq.heappush(self._free, self._returned.popleft())

    @property
    def in_use(self) -> int:
        self._tidy()
        return self.count - len(self._free)


class SlotModel(Protocol):
    """What a slot's cache needs of the model whose buffers it lies in (lm.StaticLm)."""

    slots: Slots
    sizes: Any  # lm.LmSizes
    bytes_per_position: int

    def new_cache(self, room: int) -> SlotKVCache: ...

    def copy_slot(self, source: int, target: int, length: int) -> None: ...

    def fill_slot(self, slot: int, kept: Any) -> None: ...


class Place:
    """A slot number that may change (compaction) and is given back once, whoever lets go of it."""

    def __init__(self, slots: Slots):
        self._slots, self.slot = slots, slots.take()

    def move(self, to: int) -> None:
        """To the slot `to`, which was taken for it."""
        self._slots.give_back(self.slot)
        self.slot = to

    def leave(self) -> None:
        if self.slot >= 0:
            self._slots.give_back(self.slot)
            self.slot = -1


class SlotKVCache:
    """A request's past in a slot.

    `close` gives the slot back; so does losing the last reference.
    """

    def __init__(self, lm: SlotModel, slot: Place, length: int = 0):
        self._lm, self._place = lm, slot
        self.length = length  # positions that the host knows of
        self.pending = 0  # steps under way, which may or may not add a position each
        self.left = 0  # ids it may still draw, as far as the host knows
        self._leave = weakref.finalize(self, slot.leave)
        lm.slots.users[slot.slot] = self

    @property
    def slot(self) -> int:
        if self._place.slot < 0:
            raise ValueError("this past was closed")
        return self._place.slot

    @property
    def reach(self) -> int:
        """No position is at or above this."""
        return min(self.length + self.pending, self._lm.sizes.positions)

    def move(self, to: int) -> None:
        """To a slot taken for it. The content is the caller's affair."""
        users = self._lm.slots.users
        users.pop(self.slot, None)
        self._place.move(to)
        users[to] = self

    @property
    def nbytes(self) -> int:
        return self._lm.bytes_per_position * self.length

    def reserve(self, new: int) -> None:
        """Nothing to do: a slot has all its room from the start, and many ask for far more than
        they use. `claim` is the hard limit.
        """

    def claim(self, new: int) -> None:
        """Raises EngineFault when the slot does not hold `new` positions more."""
        if self.length + new > self._lm.sizes.positions:
            raise EngineFault(
                "This is too long for the language model in one piece. Split it.",
                "这一段超出语言模型的长度，请拆成几段。",
                code="too_long",
            )

    def fork(self, room: int) -> SlotKVCache:
        twin = self._lm.new_cache(self.length + room)
        self._lm.copy_slot(self.slot, twin.slot, self.reach)
        twin.length = self.length
        return twin

    def close(self) -> None:
        if self._leave.detach():
            if self._lm.slots.users.get(self._place.slot) is self:
                del self._lm.slots.users[self._place.slot]
            self._place.leave()


class StoredKVCache:
    """A prefix outside the slots: (layers, 2, kv_heads, length, head) of its own.

    Its forks are slots.
    """

    def __init__(self, lm: SlotModel, kept: Tensor):
        self._lm, self._kept = lm, kept
        self.length = kept.shape[3]

    @property
    def nbytes(self) -> int:
        return self._kept.nbytes

    def reserve(self, new: int) -> None:
        raise ValueError("a kept prefix is only forked")

    def fork(self, room: int) -> SlotKVCache:
        past = self._lm.new_cache(self.length + room)
        self._lm.fill_slot(past.slot, self._kept)
        past.length = self.length
        return past
