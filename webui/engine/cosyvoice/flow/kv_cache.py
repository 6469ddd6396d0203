"""Growing stores of keys and values, and attention over them.

A store may stand behind a read-only prefix that many requests share; what it appends is its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
import torch.nn.functional as F

FIRST_ROOM = 512  # 10 s of sound; on a CPU memory that is not written is not taken
MAX_GROWTH = 512  # positions added at once, so that doubling never overshoots by more than this


class BufferPool:
    """Memory of ended requests, kept for the next ones: what a system hands out new costs a page
    fault per 4 KiB, a fifth of a hop's time. Whoever takes some writes before it reads.
    """

    def __init__(self, max_bytes: int):
        self._max_bytes, self._lock = max_bytes, threading.Lock()
        self._free: list[torch.Tensor] = []

    def take(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        with self._lock:
            for i, room in enumerate(self._free):
                if room.shape == torch.Size(shape) and room.dtype == like.dtype:
                    return self._free.pop(i)
        return like.new_empty(shape)

    def give(self, room: torch.Tensor) -> None:
        with self._lock:
            if sum(r.nbytes for r in self._free) + room.nbytes <= self._max_bytes:
                self._free.append(room)


class KVStore:
    """K and V of several layers: (layers, 2, batch, heads, room, width).

    All layers have the same length.

    Per call: `room_for(n)`, then `put` once per layer, then `advance(n)`.
    """

    def __init__(
        self,
        layers: int,
        batch: int,
        heads: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device | str,
        rooms: BufferPool | None = None,
    ):
        self.rooms = rooms or BufferPool(0)
        self.data = torch.empty(layers, 2, batch, heads, 0, width, dtype=dtype, device=device)
        self.prefix: torch.Tensor | None = None
        self.length = 0

    def __len__(self) -> int:
        """Positions visible to the next call."""
        return self.length + (0 if self.prefix is None else self.prefix.shape[4])

    @property
    def starts(self) -> list[int]:
        """Where the next call's positions begin, for each row of the batch."""
        return [len(self)] * self.data.shape[2]

    def room_for(self, new: int) -> None:
        need, have = self.length + new, self.data.shape[4]
        if need <= have:
            return
        room = max(need, FIRST_ROOM, have + min(have, MAX_GROWTH))
        layers, two, batch, heads, _, width = self.data.shape
        larger = self.rooms.take((layers, two, batch, heads, room, width), self.data)
        if self.length:
            larger[..., : self.length, :] = self.data[..., : self.length, :]
        self.release()
        self.data = larger

    def put(self, layer: int, kv: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """kv (2, batch, heads, n, width) behind what is there.

        Returns the (K, V) pieces that are visible now, in kv's dtype.
        """
        own = self.data[layer]
        end = self.length + kv.shape[3]
        own[:, :, :, self.length : end] = kv
        own = own[:, :, :, :end].to(kv.dtype)
        pieces = [(own[0], own[1])]
        if self.prefix is not None:
            shared = self.prefix[layer].to(kv.dtype)
            pieces.insert(0, (shared[0], shared[1]))
        return pieces

    def attend(
        self, layer: int, q: torch.Tensor, kv: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """`put`, and what q (batch, heads, n, width) sees then."""
        return attend(q, self.put(layer, kv), mask)

    def advance(self, new: int) -> None:
        self.length += new

    def back_to(self, length: int) -> None:
        """Forgets what came behind its own first `length` positions."""
        self.length = length

    def release(self) -> None:
        """Give its memory to whoever comes next. Nothing may be read from it afterwards."""
        if self.data.shape[4]:
            self.rooms.give(self.data)
            self.data = self.data[..., :0, :].clone()

    def freeze(self) -> None:
        """What was stored becomes the prefix of all forks, without spare room.

        For a store that has no prefix yet.
        """
        if self.length:
            self.prefix = self.data[..., : self.length, :].clone()
        self.release()
        self.length = 0

    def fork(self) -> KVStore:
        """A store of its own behind the same prefix; only for a frozen one."""
        twin = object.__new__(KVStore)
        twin.data, twin.prefix, twin.length, twin.rooms = self.data, self.prefix, 0, self.rooms
        return twin

    def row(self, index: int) -> KVStore:
        """One row of the batch, in the same memory: for a call that has room already (`room_for`),
        and whose `advance` is done here.
        """
        twin = object.__new__(KVStore)
        twin.data, twin.length = self.data[:, :, index : index + 1], self.length
        twin.prefix = None if self.prefix is None else self.prefix[:, :, index : index + 1]
        return twin

    def copy(self) -> KVStore:
        twin = self.fork()
        twin.data, twin.length = self.data[..., : self.length, :].clone(), self.length
        return twin

    @property
    def bytes(self) -> int:
        """Memory of its own; the shared prefix is not counted."""
        return self.data.numel() * self.data.element_size()


class BatchKVStore:
    """Stores of several requests as one to the layers of a call: their rows one after the other.

    Each keeps and sees its own.
    """

    def __init__(self, stores: Sequence[KVStore]):
        self._stores, self._rows = stores, [store.data.shape[2] for store in stores]

    @property
    def starts(self) -> list[int]:
        return [start for store in self._stores for start in store.starts]

    def room_for(self, new: int) -> None:
        for store in self._stores:
            store.room_for(new)

    def attend(
        self, layer: int, q: torch.Tensor, kv: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        shares = zip(self._stores, q.split(self._rows), kv.split(self._rows, 1), strict=True)
        return torch.cat(
            [store.attend(layer, store_q, store_kv, mask) for store, store_q, store_kv in shares]
        )

    def advance(self, new: int) -> None:
        for store in self._stores:
            store.advance(new)


def attend(
    q: torch.Tensor, pieces: list[tuple[torch.Tensor, torch.Tensor]], mask: torch.Tensor | None
) -> torch.Tensor:
    """q (batch, heads, n, width) over all pieces as if they were one.

    `mask` (n, m) is additive and meant for the last m keys.
    """
    if len(pieces) == 2 and q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64):
        return _attend_in_parts(q, *pieces, mask)
    k, v = pieces[0] if len(pieces) == 1 else (torch.cat(pair, 2) for pair in zip(*pieces))
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        return _attend_by_products(q, k, v, _wide(mask, k))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_wide(mask, k))


def _attend_by_products(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Two plain products: in bf16 on a CPU they take 0.55 of the fused kernel's time, whose blocks
    are too small for the matrix units. Scores are rounded to bf16 on the way (36-41 dB below the
    result, where the fused kernel has 42-46).
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return (scores if mask is None else scores + mask).softmax(-1) @ v


def _wide(mask: torch.Tensor | None, k: torch.Tensor) -> torch.Tensor | None:
    return (
        F.pad(mask, (k.shape[2] - mask.shape[-1], 0))
        if mask is not None and k.shape[2] > mask.shape[-1]
        else mask
    )


def _attend_in_parts(
    q: torch.Tensor, shared: tuple, own: tuple, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attention over each piece, then weighed by the sums of their exponentials: exact, and the
    shared piece is never copied. (On a CPU that copy would be a gigabyte per step at real size.)
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    near, near_sum = flash(q, *own, attn_mask=_wide(mask, own[0]))
    far, far_sum = flash(q, *shared)
    return torch.lerp(near, far, torch.sigmoid(far_sum - near_sum)[..., None])
