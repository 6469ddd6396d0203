"""The flow's solve as one function of static buffers: from mu to the mel of a batch of requests,
all Euler steps and both guidance rows. It stands in the place of a flow: voices and requests are
the plain ones, and so is the way from ids to mu.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....errors import EngineFault
from ....messages import message
from ..flow import CausalFlow
from ..flow.causal_flow import Work
from ..flow.conformer import EncoderCache
from ..flow.conv import ConvCache
from ..flow.dims import FRAMES_PER_ID, MEL_BANDS
from ..flow.hop_flow import HopCache, HopFlow, ends
from ..flow.hop_flow import Work as Hop
from ..flow.valid_frames import FirstFrames
from .capture import Allocator, Capture, EagerCapture, Graphs, fit, upload
from .flow_memory import (
    ROWS_PER_UNIT,
    SCRATCH,
    GatheredTails,
    PooledKv,
    PooledPast,
    TailStore,
    rows_of,
    visible,
)

HEAD = 3  # of a job: slot, start, count


class Solve:
    """Inputs and output of a solve, by row: noise, mu, cond, mels (batch, frames, 80), speakers
    (batch, 80).
    """

    def __init__(self, flow: CausalFlow | HopFlow, batch: int, frames: int):
        self.flow, self.dims, self.dtype, self.device = flow, flow.dims, flow.dtype, flow.device
        self.decoder, self.speaker = flow.decoder, flow.speaker
        self.solver = copy(flow.decoder)  # the same weights, but both guidance rows in one call
        self.solver.beside = None
        exact = torch.promote_types(flow.dtype, torch.float32)

        def zeros(*shape: int, dtype: torch.dtype = flow.dtype) -> Tensor:
            return torch.zeros(batch, *shape, dtype=dtype, device=flow.device)

        self.noise, self.mels = (zeros(frames, MEL_BANDS, dtype=exact) for _ in range(2))
        self.mu, self.cond = (zeros(frames, MEL_BANDS) for _ in range(2))
        self.speakers = zeros(MEL_BANDS)

    def put(self, row: int, noise: Tensor, mu: Tensor, speaker: Tensor, prompt_mel: Tensor) -> None:
        """noise, mu (n, 80), known: the prompt's frames among them."""
        self.noise[row, : len(noise)].copy_(noise)
        self.mu[row, : len(mu)].copy_(mu)
        self.speakers[row].copy_(speaker)
        self.cond[row].zero_()
        self.cond[row, : len(prompt_mel)].copy_(prompt_mel)

    def solve(self, batch: int, frames: int, pasts: list[StepPast] | None, mask: object) -> None:
        """pasts: of all requests, one for each Euler step."""
        mel = self.solver.guided(
            self.noise[:batch, :frames],
            self.mu[:batch, :frames],
            self.speakers[:batch],
            self.cond[:batch, :frames],
            None if pasts is None else [pasts],
            mask,
        )
        self.mels[:batch, :frames].copy_(mel)


@dataclass(frozen=True)
class FlowSizes:
    """ids: how many new ids a call takes per stream, the last those of the longest hop with its
    look-ahead; batches: how many streams; reaches: how many earlier ids a call looks back on; one
    that looks back further goes alone and without a graph, up to `furthest`: a clip of 30 s and all
    that the language model can say behind it. units: ids of all streams and voices together. slots:
    streams and voices together.
    """

    ids: tuple[int, ...] = (12, 28, 52, 104)
    batches: tuple[int, ...] = (1, 2, 4, 8)
    reaches: tuple[int, ...] = (128, 256, 512, 1024)
    units: int = 16000
    slots: int = 192
    furthest: int = 3072


@dataclass
class StepPast:
    """What the estimator asks of an EstimatorCache."""

    store: PooledKv
    tails: GatheredTails


class CapturedFlow(Solve):
    """In the place of a CausalFlow. Used from one thread, on one stream."""

    def __init__(
        self,
        flow: CausalFlow,
        sizes: FlowSizes | None = None,
        capture: Capture | None = None,
        store: torch.dtype | None = None,
    ):
        """store: dtype of the kept K/V, the model's when None."""
        s = self.sizes = sizes or FlowSizes()
        d, batch, most = flow.dims, s.batches[-1], s.ids[-1]
        super().__init__(flow, batch, FRAMES_PER_ID * most)
        self.graphs = Graphs("flow", self.hop, capture or EagerCapture())
        self.units = Allocator(s.units, message("gpu_memory.speech"), SCRATCH + 1)
        self.slots = Allocator(s.slots, message("gpu_memory.voices"), SCRATCH + 1)
        self.rows = torch.zeros(
            d.euler_steps,
            d.estimator_layers,
            (s.units + 1) * ROWS_PER_UNIT,
            2 * d.estimator_heads * d.estimator_head_dim,
            dtype=store or flow.dtype,
            device=flow.device,
        )
        self.tails = TailStore(
            flow.decoder.estimator, s.slots + 1, d.euler_steps, flow.dtype, flow.device
        )
        self.widths = (HEAD, most, most, s.furthest)  # head, new units, block ends, past units
        self.jobs = torch.zeros(batch, sum(self.widths), dtype=torch.long, device=flow.device)

    @property
    def bytes_per_unit(self) -> int:
        return self.rows.nbytes // (self.sizes.units + 1)

    @torch.inference_mode()
    def record(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        s = self.sizes
        upload(self.jobs, self._table([], [], s.batches[-1]))
        self.graphs.record(
            [(n, b, r) for n in s.ids[::-1] for b in s.batches[::-1] for r in s.reaches[::-1]],
            on_progress,
        )

    @torch.inference_mode()
    def hop(self, new: int, batch: int, reach: int) -> None:
        """`mels` of the first `batch` jobs, and what their streams remember."""
        head, units, ends, past = self.jobs[:batch].split(self.widths, 1)
        units, ends, past = units[:, :new], ends[:, :new], past[:, -reach:]
        slots, start, count = head.unbind(1)
        ends = (ends * FRAMES_PER_ID).repeat_interleave(FRAMES_PER_ID, 1)
        mask = visible(reach * FRAMES_PER_ID, start * FRAMES_PER_ID, ends, self.mu)
        starts, counts = ((x * FRAMES_PER_ID).repeat_interleave(2) for x in (start, count))
        fresh, tails = rows_of(units), self.tails.of(slots, counts)
        key_rows = torch.cat([rows_of(past), fresh], 1)
        pasts = [
            StepPast(PooledKv(rows, fresh, key_rows, starts), own)
            for rows, own in zip(self.rows, tails, strict=True)
        ]
        self.solve(batch, FRAMES_PER_ID * new, pasts, mask.repeat_interleave(2, 0))
        self.tails.keep(slots, tails)

    # ---- as a CausalFlow -------------------------------------------------------------------------
    def new_past(self) -> EncoderCache | ConvCache:
        return self.flow.new_past()

    def new_pasts(self, store: torch.dtype) -> list[PooledPast]:
        """store: that of the pool, whatever is asked."""
        return [PooledPast(self)]

    def batch_shape(self, done: int, ends: Sequence[int]) -> Hashable:
        """The bucket of new ids; None where it looks back too far."""
        return fit(self.sizes.ids, ends[-1]) if done <= self.sizes.reaches[-1] else None

    def advance(self, *work) -> Tensor:
        return self.advance_many([Work(*work)])[0]

    @torch.inference_mode()
    def advance_many(self, works: Sequence[Work]) -> list[Tensor]:
        """mel (2 * count, 80) of each. When it raises, nothing of any of them is done."""
        s, furthest = self.sizes, max(work.start for work in works)
        if furthest > s.furthest:
            raise EngineFault("too_long.acoustic_model")
        size = (
            fit(s.ids, max(work.count for work in works)),
            fit(s.batches, len(works)),
            fit((*s.reaches, s.furthest), furthest),
        )
        new_units = self.units.take(sum(work.count for work in works))
        marks = [work.encoder_past.mark() for work in works]
        try:
            fresh = iter(new_units)
            units = [[next(fresh) for _ in range(work.count)] for work in works]
            upload(self.jobs[: size[1]], self._table(works, units, size[1]))
            for row, work in enumerate(works):
                mu = self.flow.encode(work.ids, work.final, work.encoder_past, work.blocks)[0]
                end = work.start + work.count
                frames = slice(FRAMES_PER_ID * work.start, FRAMES_PER_ID * end)
                noise, prompt_mel = self.decoder.noise[0, frames], work.prompt_mel[frames]
                self.put(row, noise, mu, work.speaker[0], prompt_mel)
            self.graphs(*size)
        except BaseException:
            self.units.give_back(new_units)
            for work, mark in zip(works, marks, strict=True):
                work.encoder_past.back_to(mark)
            raise
        for work, own in zip(works, units, strict=True):
            work.pasts[0].own += own
        return [
            mel[: FRAMES_PER_ID * work.count].clone()
            for mel, work in zip(self.mels, works, strict=False)
        ]

    def _table(self, works: Sequence[Work], units: Sequence[list[int]], batch: int) -> np.ndarray:
        """The job table. A row without work sees itself: nothing visible at all would make it
        NaN.
        """
        table = np.zeros((batch, sum(self.widths)), np.int64)
        head, new, ends, past = np.split(table, np.cumsum(self.widths)[:-1], 1)
        ends[:] = 1
        for row, (work, own) in enumerate(zip(works, units, strict=True)):
            start, end = work.start, work.start + work.count
            head[row] = work.pasts[0].slot, start, work.count
            new[row, : work.count], ends[row] = own, work.count
            ends[row, : work.count] = [
                min(work.blocks.end_after(i), end) - start for i in range(start, end)
            ]
            past[row, past.shape[1] - start :] = work.pasts[0].units
        return table


@dataclass(frozen=True)
class HopSizes:
    """frames: of a prompt and a hop together, even numbers; a call above the last is computed as
    ever. batches: of requests.
    """

    frames: tuple[int, ...] = (256, 512, 768, 1024, 1280, 1536, 2048, 3072)
    batches: tuple[int, ...] = (1, 2, 4)


class CapturedHops(Solve):
    """In the place of a HopFlow: a hop behind its prompt, padded to one of few lengths. Every frame
    sees every other, so nothing of a hop can be kept for the next: recording saves its launches,
    not its work. plain: calls longer than any size.
    """

    def __init__(
        self,
        flow: HopFlow,
        sizes: HopSizes | None = None,
        capture: Capture | None = None,
        store: torch.dtype | None = None,
    ):
        """store: of what is kept, which is nothing here."""
        s = self.sizes = sizes or HopSizes()
        super().__init__(flow, s.batches[-1], s.frames[-1])
        self.graphs = Graphs("flow", self.hop, capture or EagerCapture())
        # a norm of nothing would be no number
        self.counts = torch.ones(s.batches[-1], dtype=torch.long, device=flow.device)
        self.plain = 0

    @torch.inference_mode()
    def record(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        sizes = [(n, b) for n in self.sizes.frames for b in self.sizes.batches]
        self.graphs.record(sizes[::-1], on_progress)

    @torch.inference_mode()
    def hop(self, frames: int, batch: int) -> None:
        counts = self.counts[:batch].repeat_interleave(2)
        self.solve(batch, frames, None, FirstFrames(counts, frames))

    @torch.inference_mode()
    def hops(self, works: Sequence[Hop]) -> list[tuple[Tensor, HopCache]]:
        """As HopFlow's, of any lengths."""
        out, s = [], self.sizes
        for at in range(0, len(works), s.batches[-1]):
            batch = works[at : at + s.batches[-1]]
            if max(work.frames for work in batch) > s.frames[-1]:
                self.plain += len(batch)
                out += [self.flow.hops([work])[0] for work in batch]
                continue
            inputs = [self.flow.hop_inputs(work) for work in batch]
            size = fit(s.frames, max(work.frames for work in batch)), fit(s.batches, len(batch))
            padding = [1] * (size[1] - len(batch))
            upload(self.counts[: size[1]], [*(work.frames for work in batch), *padding])
            for row, (work, hop_input) in enumerate(zip(batch, inputs, strict=True)):
                self.put(row, hop_input.noise[0], hop_input.mu[0], work.speaker[0], work.prompt_mel)
            self.graphs(*size)
            for mel, work, hop_input in zip(self.mels, batch, inputs, strict=False):
                prompt = len(work.prompt_mel)
                out.append((mel[prompt : work.frames].clone(), ends(hop_input, prompt)))
        return out
