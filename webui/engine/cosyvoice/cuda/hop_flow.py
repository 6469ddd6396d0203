"""The flow over static buffers: a hop behind its prompt, padded to one of few lengths.

What a request remembers stays as in `..flow.state`.

Every frame sees every other, so nothing of a hop can be kept for the next: recording saves its
launches, not its work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..dims_v1 import FRAME_SAMPLES, IDS_PER_S, RATE_HZ, frames_of
from ..flow.dims import MEL_BANDS
from ..flow.hop_encoder import pieces
from ..flow.hop_flow import HopCache, HopFlow, ends
from ..flow.hop_flow import Work as Hop
from ..flow.valid_frames import FirstFrames
from .capture import Capture, EagerCapture, Table, Work
from .staging import Upload

IDS_PER_FRAME = IDS_PER_S * FRAME_SAMPLES / RATE_HZ
SPARE_IDS = 16  # prompts have about as many frames as their ids, not exactly
COUNTS = 3  # of ids, of frames, and of frames whose noise and mu are those of the call before


@dataclass(frozen=True)
class HopSizes:
    """frames: of a prompt and a hop together, even numbers; a call above the last goes its usual
    way. batches: of requests.
    """

    frames: tuple[int, ...] = (256, 512, 768, 1024, 1280, 1536, 2048, 3072)
    batches: tuple[int, ...] = (1, 2, 4)

    def ids(self, frames: int) -> int:
        return int(frames * IDS_PER_FRAME) + SPARE_IDS

    def bucket(self, ids: int, frames: int) -> int | None:
        """The smallest that holds both."""
        return next(
            (size for size in self.frames if frames <= size and ids <= self.ids(size)), None
        )


class HopBuffers:
    def __init__(self, flow: HopFlow, sizes: HopSizes):
        batch, frames, like = (
            sizes.batches[-1],
            sizes.frames[-1],
            {"dtype": flow.dtype, "device": flow.device},
        )
        self.most_ids, self.most_frames = sizes.ids(frames), frames
        exact = {"dtype": torch.promote_types(flow.dtype, torch.float32), "device": flow.device}
        self.jobs = torch.zeros(
            batch, COUNTS + self.most_ids + 2 * frames, dtype=torch.long, device=flow.device
        )
        self.weights = torch.zeros(batch, frames, dtype=torch.float32, device=flow.device)
        self.noise, self.mels = (torch.zeros(batch, frames, MEL_BANDS, **exact) for _ in range(2))
        self.earlier_mu, self.mu, self.cond = (
            torch.zeros(batch, frames, MEL_BANDS, **like) for _ in range(3)
        )
        self.speakers = torch.zeros(batch, MEL_BANDS, **like)

    def parts(self, jobs):
        """(batch, ...) of a job table, tensor or array: counts (3), ids, and for each frame the ids
        between which it lies
        """
        first, second = COUNTS + self.most_ids, COUNTS + self.most_ids + self.most_frames
        return jobs[:, :COUNTS], jobs[:, COUNTS:first], jobs[:, first:second], jobs[:, second:]


class StaticHops:
    """In the place of a HopFlow for voices and requests.

    Used from one thread, on one stream. Call `prewarm` before the first hop.
    passed_by: calls longer than any size.
    """

    def __init__(
        self, flow: HopFlow, sizes: HopSizes | None = None, capture: Capture | None = None
    ):
        self.flow, self.sizes = flow, sizes or HopSizes()
        self.dims, self.dtype, self.device, self.decoder, self.speaker = (
            flow.dims,
            flow.dtype,
            flow.device,
            flow.decoder,
            flow.speaker,
        )
        self.buffers, self.table = HopBuffers(flow, self.sizes), Table(capture or EagerCapture())
        self._jobs, self._weights = Upload(self.buffers.jobs), Upload(self.buffers.weights)
        self._solver = copy(
            flow.decoder
        )  # the same weights, but both rows in one call whatever the other is told
        self._solver.beside = None
        self.passed_by = 0

    def works(self) -> dict[Hashable, Work]:
        s = self.sizes
        return {
            (frames, batch): partial(self._work, frames, batch)
            for frames in reversed(s.frames)
            for batch in reversed(s.batches)
        }

    @torch.inference_mode()
    def prewarm(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        self._write([])
        for layer in self.flow.encoder.encoders:
            layer.self_attn.positions(
                self.buffers.most_ids, self.buffers.most_ids
            )  # grown now: graphs read the table where it is
        self.table.fill(self.works(), on_progress)
        self._tables = [layer.self_attn.table for layer in self.flow.encoder.encoders]

    @torch.inference_mode()
    def hops(self, works: Sequence[Hop]) -> list[tuple[Tensor, HopCache]]:
        """As HopFlow's, of any lengths."""
        out, most = [], self.sizes.batches[-1]
        for at in range(0, len(works), most):
            some = works[at : at + most]
            frames = self.sizes.bucket(
                max(len(work.prompt_ids) + len(work.ids) for work in some),
                max(work.frames for work in some),
            )
            out += self._passed_by(some) if frames is None else self._replayed(some, frames)
        return out

    def _passed_by(self, works: Sequence[Hop]) -> list[tuple[Tensor, HopCache]]:
        self.passed_by += len(works)
        return [self.flow.hops([work])[0] for work in works]

    def _replayed(self, works: Sequence[Hop], frames: int) -> list[tuple[Tensor, HopCache]]:
        buffers, batch = (
            self.buffers,
            next(size for size in self.sizes.batches if len(works) <= size),
        )
        self._write(works)
        for row, work in enumerate(works):
            known, again = len(work.prompt_mel), 0 if work.kept is None else work.kept.mu.shape[1]
            buffers.cond[row].zero_()
            buffers.cond[row, :known].copy_(work.prompt_mel)
            buffers.speakers[row].copy_(work.speaker[0])
            buffers.noise[row, : work.frames].copy_(work.noise[0])
            if again:
                buffers.noise[row, :again].copy_(work.kept.noise[0])
                buffers.earlier_mu[row, :again].copy_(work.kept.mu[0])
        self.table.play((frames, batch))
        return [self._taken(row, work) for row, work in enumerate(works)]

    def _taken(self, row: int, work: Hop) -> tuple[Tensor, HopCache]:
        whole = slice(row, row + 1), slice(work.frames)
        begun = HopCache(self.buffers.noise[whole], self.buffers.mu[whole])
        return self.buffers.mels[row, len(work.prompt_mel) : work.frames].clone(), ends(
            begun, len(work.prompt_mel)
        )

    def _write(self, works: Sequence[Hop]) -> None:
        """The job table.

        A row without work has one id and one frame: a norm of nothing would be no number.
        """
        jobs, weights = self._jobs.array(), self._weights.array()
        counts, ids, below, above = self.buffers.parts(jobs)
        jobs[:], weights[:], counts[:, :2] = 0, 0, 1
        for row, work in enumerate(works):
            joined = torch.cat([work.prompt_ids, work.ids]).clamp(min=0).numpy()
            if joined.max() >= self.dims.speech_token_size:
                raise ValueError(
                    f"speech id {joined.max()} is outside 0..{self.dims.speech_token_size - 1}"
                )
            counts[row] = (
                len(joined),
                work.frames,
                0 if work.kept is None else work.kept.mu.shape[1],
            )
            ids[row, : len(joined)] = joined
            below[row, : work.frames], above[row, : work.frames], weights[row, : work.frames] = (
                between(len(work.prompt_ids), len(work.prompt_mel), len(work.ids))
            )
        self._jobs.send()
        self._weights.send()

    @torch.inference_mode()
    def _work(self, frames: int, batch: int) -> None:
        """The first `batch` jobs to `mels` and `mu`."""
        flow, buffers = self.flow, self.buffers
        counts, ids, below, above = buffers.parts(buffers.jobs[:batch])
        ids, below, above = (
            ids[:, : self.sizes.ids(frames)],
            below[:, :frames, None],
            above[:, :frames, None],
        )
        heard = flow.encoder_proj(
            flow.encoder(flow.input_embedding(ids), FirstFrames(counts[:, 0], ids.shape[1]))
        )
        wide, weight = heard.to(buffers.weights.dtype), buffers.weights[:batch, :frames, None]
        low, high = (wide.gather(1, at.expand(-1, -1, MEL_BANDS)) for at in (below, above))
        mu = flow.length_regulator.smoothed(
            (low * (1 - weight) + high * weight).to(heard.dtype), FirstFrames(counts[:, 1], frames)
        )
        is_again = (torch.arange(frames, device=counts.device) < counts[:, 2:])[..., None]
        mu = torch.where(is_again, buffers.earlier_mu[:batch, :frames], mu)
        buffers.mu[:batch, :frames].copy_(mu)
        both = FirstFrames(counts[:, 1].repeat_interleave(2), frames)
        mel = self._solver.guided(
            buffers.noise[:batch, :frames],
            mu,
            buffers.speakers[:batch],
            buffers.cond[:batch, :frames],
            None,
            both,
        )
        buffers.mels[:batch, :frames].copy_(mel)


def between(
    prompt_ids: int, prompt_frames: int, ids: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every frame the ids below and above it, and how far it is on the way: what F.interpolate
    does of each piece by itself.
    """
    parts = [
        (0, prompt_ids, prompt_frames),
        *(
            (prompt_ids + start, prompt_ids + end, count)
            for start, end, count in pieces(ids, frames_of(ids))
        ),
    ]
    below, above, weights = [], [], []
    for start, end, count in (part for part in parts if part[2]):
        at = np.maximum(
            (np.arange(count, dtype=np.float32) + np.float32(0.5))
            * np.float32((end - start) / count)
            - np.float32(0.5),
            0,
        )
        low = at.astype(np.int64)
        below.append(start + low)
        above.append(start + np.minimum(low + 1, end - start - 1))
        weights.append(at - low)
    return np.concatenate(below), np.concatenate(above), np.concatenate(weights)
