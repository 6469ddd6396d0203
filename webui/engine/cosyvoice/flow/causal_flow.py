"""The flow models: speech ids, prompt mel and speaker vector to mel.

Weights only; every request's memory is in stream.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from ....errors import BadInput
from .blocks import Blocks
from .cfm_solver import CausalCFM
from .conformer import Encoder, EncoderCache
from .conv import ConvCache
from .dims import FRAMES_PER_ID, LOOKAHEAD_IDS, MAX_FRAMES, MEL_BANDS, EstimatorSizes, FlowDims
from .kv_cache import BufferPool
from .network import FlowNetwork
from .unet import Estimator, EstimatorCache

KEPT_FRAMES = 1000  # memory of ended requests: what the memory plan counts for one stream


@dataclass
class Work:
    """Arguments of `FlowModel.advance`, of one request."""

    ids: torch.Tensor
    start: int
    final: bool
    prompt_mel: torch.Tensor
    speaker: torch.Tensor
    encoder_past: EncoderCache | ConvCache
    pasts: list[EstimatorCache] | None
    blocks: Blocks | None

    @property
    def count(self) -> int:
        return len(self.ids) - (0 if self.final else LOOKAHEAD_IDS)

    def mark(self) -> tuple:
        return self.encoder_past.mark(), [past.mark() for past in self.pasts or ()]

    def back_to(self, mark: tuple) -> None:
        self.encoder_past.back_to(mark[0])
        for past, own in zip(self.pasts or (), mark[1], strict=True):
            past.back_to(own)


class CausalFlow(FlowNetwork, ABC):
    """What generations share whose flow never changes a complete block.

    Their own are the way from ids to mu, and the estimator.
    """

    solver = CausalCFM

    def __init__(self, dims: EstimatorSizes, width: int, estimator: nn.Module):
        super().__init__(dims, width, estimator)
        self.rooms = BufferPool(0)

    def pack(self) -> Self:
        super().pack()
        if self.device.type == "cpu":
            self.rooms = BufferPool(KEPT_FRAMES * self.dims.bytes_per_frame(self.dtype.itemsize))
        return self

    @abstractmethod
    def new_past(self) -> EncoderCache | ConvCache:
        """What `encode` remembers, empty."""

    def new_pasts(self, store: torch.dtype) -> list[EstimatorCache]:
        """What the estimator remembers, empty: one for each Euler step. store: dtype of K/V."""
        return [
            EstimatorCache(self.dims, store, self.device, self.rooms)
            for _ in range(self.dims.euler_steps)
        ]

    def batch_shape(self, done: int, ends: Sequence[int]) -> Hashable:
        """Equal for works that can share a call, which share its weights and its mask: done, ids
        behind them; ends, of their blocks, counted from there.
        """
        return (done == 0, *ends)

    @abstractmethod
    def encode(
        self, ids: torch.Tensor, final: bool, past: EncoderCache | ConvCache, blocks: Blocks | None
    ) -> torch.Tensor:
        """New ids (rows,), not final with 3 more as context -> mu (1, 2n, 80)"""

    def advance(
        self,
        ids: torch.Tensor,
        start: int,
        final: bool,
        prompt_mel: torch.Tensor,
        speaker: torch.Tensor,
        encoder_past: EncoderCache | ConvCache,
        pasts: list[EstimatorCache] | None,
        blocks: Blocks | None,
    ) -> torch.Tensor:
        """ids (rows,) from position `start` on -> mel (2n, 80) of these positions, prompt frames
        included. The pasts must end at `start` and end at start + n afterwards.
        """
        return self.advance_many(
            [Work(ids, start, final, prompt_mel, speaker, encoder_past, pasts, blocks)]
        )[0]

    def advance_many(self, works: Sequence[Work]) -> list[torch.Tensor]:
        """`advance` for works of one `shape`, the estimator's calls shared.

        When it raises, nothing of any of them is done.
        """
        marks = [work.mark() for work in works]
        for work in works:
            if FRAMES_PER_ID * (work.start + work.count) > MAX_FRAMES:
                raise BadInput("bad_input.over_300_s")
        try:
            return list(self._advance_batch(works))
        except Exception:
            for work, mark in zip(works, marks, strict=True):
                work.back_to(mark)
            raise

    def _advance_batch(self, works: Sequence[Work]) -> torch.Tensor:
        first_work, frames = works[0], FRAMES_PER_ID * works[0].count
        mu = torch.cat(
            [self.encode(work.ids, work.final, work.encoder_past, work.blocks) for work in works]
        )
        cond = mu.new_zeros(len(works), frames, MEL_BANDS)
        for row, work in zip(cond, works, strict=True):
            prompt_frames = work.prompt_mel[FRAMES_PER_ID * work.start :][:frames]
            row[: len(prompt_frames)] = prompt_frames
        mask = (
            first_work.blocks.mask(first_work.start, first_work.count, FRAMES_PER_ID, mu)
            if first_work.blocks
            else None
        )
        speakers = torch.cat([work.speaker for work in works])
        pasts = None if first_work.pasts is None else [work.pasts for work in works]
        return self.decoder.solve_many(
            [FRAMES_PER_ID * work.start for work in works], mu, speakers, cond, pasts, mask
        )

    @torch.inference_mode()
    def whole(
        self,
        ids: torch.Tensor,
        prompt_ids: torch.Tensor,
        prompt_mel: torch.Tensor,
        embedding: torch.Tensor,
        blocks: Blocks | None = None,
        final: bool = True,
    ) -> torch.Tensor:
        """All at once, nothing kept. ids (n,), prompt_ids (p,), prompt_mel (t, 80), embedding
        (192,) -> mel (frames, 80) after the prompt's. blocks None: full attention; not final: the
        last 3 ids are look-ahead only.
        """
        joined = torch.cat([prompt_ids.reshape(-1).long(), ids.reshape(-1).long()])
        prompt_mel = prompt_mel.reshape(-1, MEL_BANDS).to(device=self.device, dtype=self.dtype)
        mel = self.advance(
            joined, 0, final, prompt_mel, self.speaker(embedding), self.new_past(), None, blocks
        )
        return mel[len(prompt_mel) :]


class FlowModel(CausalFlow):
    """CosyVoice2's."""

    def __init__(self, dims: FlowDims):
        super().__init__(dims, dims.input_size, Estimator(dims))
        self.encoder = Encoder(dims)
        self.encoder_proj = nn.Linear(dims.encoder_dim, MEL_BANDS)

    def new_past(self) -> EncoderCache:
        return EncoderCache(self.dims, self.dtype, self.device)

    def encode(
        self, ids: torch.Tensor, final: bool, past: EncoderCache, blocks: Blocks | None
    ) -> torch.Tensor:
        return self.encoder_proj(self.encoder(self.embedded(ids), final, past, blocks))
