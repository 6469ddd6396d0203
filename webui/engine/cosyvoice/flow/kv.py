"""Growing stores of keys and values, and attention over them.

A store may stand behind a read-only prefix that many requests share; what it appends is its own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

FIRST_ROOM = 128
MAX_GROWTH = 512  # positions added at once, so that doubling never overshoots by more than this


class KvStore:
    """K and V of several layers: (layers, 2, batch, heads, room, width). All layers have the same length.

    Per call: `room_for(n)`, then `put` once per layer, then `advance(n)`."""

    def __init__(self, layers: int, batch: int, heads: int, width: int, dtype: torch.dtype, device: torch.device | str):
        self.data = torch.empty(layers, 2, batch, heads, 0, width, dtype=dtype, device=device)
        self.prefix: torch.Tensor | None = None
        self.length = 0

    def __len__(self) -> int:
        """Positions visible to the next call."""
        return self.length + (0 if self.prefix is None else self.prefix.shape[4])

    def room_for(self, new: int) -> None:
        need, have = self.length + new, self.data.shape[4]
        if need <= have:
            return
        room = max(need, FIRST_ROOM, have + min(have, MAX_GROWTH))
        layers, two, batch, heads, _, width = self.data.shape
        grown = self.data.new_empty(layers, two, batch, heads, room, width)
        if self.length:
            grown[..., : self.length, :] = self.data[..., : self.length, :]
        self.data = grown

    def put(self, layer: int, kv: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """kv (2, batch, heads, n, width) behind what is there. Returns the (K, V) pieces that are visible now, in kv's dtype."""
        own = self.data[layer]
        end = self.length + kv.shape[3]
        own[:, :, :, self.length : end] = kv
        own = own[:, :, :, :end].to(kv.dtype)
        pieces = [(own[0], own[1])]
        if self.prefix is not None:
            shared = self.prefix[layer].to(kv.dtype)
            pieces.insert(0, (shared[0], shared[1]))
        return pieces

    def advance(self, new: int) -> None:
        self.length += new

    def trimmed(self) -> torch.Tensor:
        """What was stored, without the spare room; the store must have no prefix."""
        return self.data[..., : self.length, :].clone()

    def behind(self, prefix: torch.Tensor) -> KvStore:
        """A new, empty store behind a shared prefix, which is never written."""
        fresh = KvStore(self.data.shape[0], *self.data.shape[2:4], self.data.shape[5], self.data.dtype, self.data.device)
        fresh.prefix = prefix if prefix.shape[4] else None
        return fresh

    @property
    def bytes(self) -> int:
        """Memory of its own; the shared prefix is not counted."""
        return self.data.numel() * self.data.element_size()


def attend(q: torch.Tensor, pieces: list[tuple[torch.Tensor, torch.Tensor]], mask: torch.Tensor | None) -> torch.Tensor:
    """q (batch, heads, n, width) over all pieces as if they were one. `mask` (n, n) is additive and meant for the last n keys."""
    if len(pieces) == 1:
        k, v = pieces[0]
        if mask is not None and k.shape[2] > q.shape[2]:
            mask = F.pad(mask, (k.shape[2] - q.shape[2], 0))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    # two pieces are never copied together: at real size the shared one alone is a gigabyte
    (k0, v0), (k1, v1) = pieces
    q = q * q.shape[-1] ** -0.5
    own = q @ k1.mT
    if mask is not None:
        own[..., -q.shape[2] :] += mask
    wide = torch.promote_types(q.dtype, torch.float32)
    weights = torch.cat([q @ k0.mT, own], -1).softmax(-1, dtype=wide).to(q.dtype)
    split = k0.shape[2]
    return weights[..., :split] @ v0 + weights[..., split:] @ v1
