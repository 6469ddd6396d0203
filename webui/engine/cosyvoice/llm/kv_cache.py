"""What one request remembers of the language model: keys and values of every layer.

Knows shapes; blind to what the positions mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .dims import LmDims

GROWTH_TOKENS = 256


class TorchKVCache:
    """Keys and values, (layers, 2, batch, kv_heads, capacity, head_size), the first `length`
    positions filled. One per request.
    """

    def __init__(
        self,
        dims: LmDims,
        capacity: int = GROWTH_TOKENS,
        batch: int = 1,
        dtype=torch.float32,
        device="cpu",
    ):
        self.length = 0
        self._store = torch.zeros(
            dims.layers,
            2,
            batch,
            dims.kv_heads,
            max(capacity, 1),
            dims.head_size,
            dtype=dtype,
            device=device,
        )

    @property
    def capacity(self) -> int:
        return self._store.shape[4]

    @property
    def nbytes(self) -> int:
        return self._store.nbytes

    def reserve(self, new: int) -> None:
        """Make room for `new` positions behind the filled ones; doubles, so that growth costs a
        constant per position.
        """
        needed = self.length + new
        if needed > self.capacity:
            old = self._store
            shape = list(old.shape)
            shape[4] = max(needed, 2 * self.capacity)
            self._store = old.new_zeros(shape)
            self._store[..., : self.length, :] = old[..., : self.length, :]

    def put(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write (batch, kv_heads, new, head_size) behind the filled positions; returns views of all
        keys and values so far.
        """
        stop = self.length + keys.shape[2]
        layer_cache = self._store[layer]
        layer_cache[0, :, :, self.length : stop] = keys
        layer_cache[1, :, :, self.length : stop] = values
        return layer_cache[0, :, :, :stop], layer_cache[1, :, :, :stop]

    def advance(self, new: int) -> None:
        self.length += new

    def release(self) -> Tensor:
        """The filled positions, (layers, 2, batch, kv_heads, length, head_size); the cache is empty
        and small afterwards.
        """
        filled, self._store = self._store[..., : self.length, :], self._store[..., :1, :].clone()
        self.length = 0
        return filled

    def fork(self, room: int = GROWTH_TOKENS) -> TorchKVCache:
        """A cache of its own with the same past and `room` free positions.

        The original stays as it is: a voice's prefix serves many.
        """
        twin = object.__new__(TorchKVCache)
        twin.length = self.length
        shape = list(self._store.shape)
        shape[4] = self.length + room
        twin._store = self._store.new_zeros(shape)
        twin._store[..., : self.length, :] = self._store[..., : self.length, :]
        return twin
