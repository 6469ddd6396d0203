"""Where blocks of ids end.

A position sees everything up to the end of its own block, so a complete block is final for ever.

Positions count from the start of the prompt. Frames have the same ends, doubled.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Blocks:
    """`ends`: ascending block ends of one's own (may be empty); past the last of them every `size`
    ids ends a block.
    """

    size: int = 25
    ends: tuple[int, ...] = ()

    def __post_init__(self):
        if self.size < 1 or any(b <= a for a, b in zip((0, *self.ends), self.ends)):
            raise ValueError(
                f"block ends must ascend from above 0, got {self.ends} and size {self.size}"
            )

    @classmethod
    def behind(cls, prompt_ids: int, first: int = 25, size: int = 25) -> Blocks:
        """Blocks that end where the prompt does: the odd ids are its first block, then `size` at a
        time, and `first` ids behind it, then up to `size`. Every cut is exact; with `first` below
        `size` the first hop is cut otherwise than the model was trained: listen first.
        """
        ends = list(range(prompt_ids % size, prompt_ids + 1, size))
        if first != size:
            ends += [prompt_ids + first, prompt_ids + size]
        return cls(size, tuple(end for end in ends if end > 0))

    def end_after(self, position: int) -> int:
        """End of the block that holds `position`."""
        at = bisect_right(self.ends, position)
        if at < len(self.ends):
            return self.ends[at]
        origin = self.ends[-1] if self.ends else 0
        return origin + ((position - origin) // self.size + 1) * self.size

    def last_end(self, n: int) -> int:
        """The largest block end that is not above n; 0 when the first block is not complete."""
        at = bisect_right(self.ends, n)
        if at < len(self.ends) or not self.ends:
            return self.ends[at - 1] if at else (0 if self.ends else n // self.size * self.size)
        return self.ends[-1] + (n - self.ends[-1]) // self.size * self.size

    def agrees(self, other: Blocks, n: int) -> bool:
        """Whether both cut the positions below n in the same way, with an end at n."""

        def cuts(blocks: Blocks) -> list[int]:
            positions, at = [], 0
            while at < n:
                at = blocks.end_after(at)
                positions.append(at)
            return positions

        return n == 0 or (cuts(self) == cuts(other) and cuts(self)[-1] == n)

    def mask(self, start: int, count: int, per_id: int, like: torch.Tensor) -> torch.Tensor | None:
        """Additive mask (count*per_id, count*per_id) among the ids start..start+count themselves,
        None when they are one block. Earlier ids need none: they are visible to all.
        """
        if self.end_after(start) >= start + count:
            return None
        ends = torch.tensor([self.end_after(start + i) - start for i in range(count)]) * per_id
        hidden = torch.arange(count * per_id)[None, :] >= ends.repeat_interleave(per_id)[:, None]
        return torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf")).to(like)
