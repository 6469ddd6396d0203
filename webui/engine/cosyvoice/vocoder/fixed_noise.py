"""The noise of the excitation: one fixed row of uniform numbers for all utterances, as the
published code holds it, drawn where it is needed.

The whole row has 65 million numbers (259 MB). Here the generator's state is kept every second of
sound, so any second can be drawn anew.
"""

from __future__ import annotations

import threading
from functools import lru_cache

import torch

from .dims import HARMONICS, RATE_HZ

BLOCK = RATE_HZ  # samples
_MODEL = (
    (6561, 80),
    (80, 192),
    (80,),
    (512, 80, 4),
    (512,),
    *(((512, 512, 3), (512,)) * 4),
    (1, 512),
    (1,),
)  # sizes of the published model, whatever ours


class FixedNoise:
    """Thread-safe.

    What stands before it: the draws with which the published code builds its flow and vocoder, from
    seed 0.
    """

    def __init__(self):
        random = torch.Generator().manual_seed(0)
        torch.randn(1, 80, 15000, generator=random)
        first, *other_shapes = _MODEL
        torch.empty(first).normal_(generator=random)
        for shape in other_shapes:
            torch.empty(shape).uniform_(generator=random)
        self.phases = torch.rand(
            1, HARMONICS, generator=random
        )  # the fundamental's is not used, and the others are heard nowhere
        self.phases[:, 0] = 0
        self._random, self._states, self._lock = random, [random.get_state()], threading.Lock()
        self._cached_block: tuple[int, torch.Tensor] | None = None

    def at(self, start: int, count: int) -> torch.Tensor:
        """The samples start..start+count of the utterance, (count, 9) float32 in 0..1."""
        blocks = range(start // BLOCK, -(-(start + count) // BLOCK))
        with self._lock:
            parts = [self._block(block) for block in blocks]
        offset = start - blocks.start * BLOCK
        return torch.cat(parts)[offset : offset + count] if parts else torch.zeros(0, HARMONICS)

    def _block(self, block: int) -> torch.Tensor:
        """The last one is kept: neighbouring pieces of a stream mostly share it."""
        if self._cached_block is None or self._cached_block[0] != block:
            while len(self._states) <= block:
                self._draw(len(self._states) - 1)
            self._cached_block = block, self._draw(block)
        return self._cached_block[1]

    def _draw(self, block: int) -> torch.Tensor:
        self._random.set_state(self._states[block])
        noise = torch.rand(BLOCK, HARMONICS, generator=self._random)
        if block + 1 == len(self._states):
            self._states.append(self._random.get_state())
        return noise


@lru_cache(maxsize=1)
def fixed_noise() -> FixedNoise:
    return FixedNoise()
