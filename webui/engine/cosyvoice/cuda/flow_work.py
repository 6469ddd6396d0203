"""The flow's one work: new ids of a batch of streams to their mel, all Euler steps and both
guidance rows, on the rows of flow_rows.py. How ids become mu is the generation's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..flow import CausalFlow
from ..flow.conv import TimeConv
from ..flow.dims import FRAMES_PER_ID, GUIDANCE, LOOKAHEAD_IDS, MAX_FRAMES, MEL_BANDS
from .flow_encoder import Encoding, Ids
from .flow_rows import GatheredTails, PooledKv, TailStore, frames_of, pairs_of, visible

HEAD = 4  # slot, start, count, given
GUIDANCE_ROWS = 2


@dataclass(frozen=True)
class FlowSizes:
    """ids: how many new ids a call takes per stream; batches: how many streams; reaches: how many
    earlier ids a call looks back on; one that looks back further goes alone and
    without a graph, up to `furthest`: a clip of 30 s and all that the language model can say behind
    it. units: ids of all streams and voices together. slots: streams and voices together.
    """

    ids: tuple[int, ...] = (12, 28, 52, 100)
    batches: tuple[int, ...] = (1, 2, 4, 8)
    reaches: tuple[int, ...] = (128, 256, 512, 1024)
    units: int = 16000
    slots: int = 192
    furthest: int = 3072


class FlowBuffers:
    """All static memory. Row SCRATCH of everything belongs to padding."""

    def __init__(
        self, flow: CausalFlow, sizes: FlowSizes, store: torch.dtype, encoding: type[Encoding]
    ):
        d, device, dtype = flow.dims, flow.device, flow.dtype
        slots, units, batch, most = (
            sizes.slots + 1,
            sizes.units + 1,
            sizes.batches[-1],
            sizes.ids[-1],
        )
        heads = 2 * d.estimator_heads * d.estimator_head_dim
        self.encoding = encoding(flow, slots, units)
        self.rows = torch.zeros(
            d.euler_steps,
            d.estimator_layers,
            units * FRAMES_PER_ID * 2,
            heads,
            dtype=store,
            device=device,
        )
        self.tails = TailStore(
            *looking_back(flow.decoder.estimator), slots, d.euler_steps, 2, dtype, device
        )
        self.speakers = torch.zeros(slots, d.spk_embed_dim, dtype=dtype, device=device)
        self.cond = torch.zeros(batch, FRAMES_PER_ID * most, MEL_BANDS, dtype=dtype, device=device)
        self.mels = torch.zeros(
            slots, FRAMES_PER_ID * most, MEL_BANDS, dtype=flow.decoder.noise.dtype, device=device
        )
        self.jobs = torch.zeros(
            batch,
            HEAD + most + LOOKAHEAD_IDS + 2 * most + sizes.furthest,
            dtype=torch.long,
            device=device,
        )
        self._most, self._furthest = most, sizes.furthest

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self.by_unit, *self.by_slot, self.cond, self.mels))

    @property
    def by_unit(self) -> list[Tensor]:
        """(layers, units, ...) each"""
        steps = self.rows.unflatten(2, (-1, FRAMES_PER_ID * GUIDANCE_ROWS))
        return [*self.encoding.by_unit, *steps]

    @property
    def by_slot(self) -> list[Tensor]:
        """(slots, ...) each, but for the mels"""
        return [self.tails.data, *self.encoding.by_slot, self.speakers]

    def bytes_per_unit(self) -> int:
        return sum(t.nbytes for t in self.by_unit) // self.by_unit[0].shape[1]

    def parts(self, jobs):
        """(batch, ...) of a job table, tensor or array: head (4), ids (most + 3), new units (most),
        block ends (most), past units (furthest)
        """
        at, out = 0, []
        for width in (HEAD, self._most + LOOKAHEAD_IDS, self._most, self._most, self._furthest):
            out.append(jobs[:, at : at + width])
            at += width
        return out


def looking_back(estimator: nn.Module) -> tuple[list[int], int]:
    """Channels of its convolutions, by slot, and on how many rows they look back."""
    convs = sorted(
        (m for m in estimator.modules() if hasattr(m, "slot")), key=lambda conv: conv.slot
    )
    widths = [
        conv.matrix.shape[1] // conv.kernel if isinstance(conv, TimeConv) else conv.in_channels
        for conv in convs
    ]
    return widths, max(
        conv.kernel if isinstance(conv, TimeConv) else conv.kernel_size[0] for conv in convs
    ) - 1


class FlowWork:
    def __init__(self, flow: CausalFlow, buffers: FlowBuffers):
        self.flow, self.buffers = flow, buffers

    @torch.inference_mode()
    def __call__(self, new: int, batch: int, reach: int) -> None:
        """Reads the first `batch` jobs; writes pools, tails and mels of their slots."""
        buffers = self.buffers
        head, ids, units, ends, past = buffers.parts(buffers.jobs[:batch])
        ids, units, ends, past = (
            ids[:, : new + LOOKAHEAD_IDS],
            units[:, :new],
            ends[:, :new],
            past[:, past.shape[1] - reach :],
        )
        slots, start, count, given = head.unbind(1)
        is_given = (torch.arange(ids.shape[1], device=ids.device) < given[:, None])[..., None]
        mu = buffers.encoding(Ids(ids, is_given, units, ends, past, slots, start, count))
        frame_ends = (ends * FRAMES_PER_ID).repeat_interleave(FRAMES_PER_ID, 1)
        mask = visible(
            reach * FRAMES_PER_ID, start * FRAMES_PER_ID, frame_ends, mu
        ).repeat_interleave(2, 0)
        rows = pairs_of(frames_of(past)), pairs_of(frames_of(units))
        mel = self._solve(mu, slots, start, count * FRAMES_PER_ID, rows, mask)
        buffers.mels[:, : FRAMES_PER_ID * new].index_copy_(0, slots, mel)

    def _solve(
        self,
        mu: Tensor,
        slots: Tensor,
        start: Tensor,
        count: Tensor,
        rows: tuple[Tensor, Tensor],
        mask: Tensor,
    ) -> Tensor:
        """-> mel (batch, 2n, 80)"""
        decoder, buffers = self.flow.decoder, self.buffers
        batch, frames, _ = mu.shape
        speaker = self.flow.spk_embed_affine_layer(
            F.normalize(buffers.speakers.index_select(0, slots), dim=1)
        )
        at = (start[:, None] * FRAMES_PER_ID + torch.arange(frames, device=mu.device)).clamp(
            max=MAX_FRAMES - 1
        )
        x = decoder.noise[0].index_select(0, at.flatten()).view(batch, frames, MEL_BANDS)
        given = mu.new_zeros(
            batch, 2, frames, 4 * MEL_BANDS
        )  # the second row is the unconditioned one
        given[:, 0, :, MEL_BANDS:] = torch.cat(
            [mu, speaker[:, None].expand(batch, frames, -1), buffers.cond[:batch, :frames]], -1
        )
        gathered, pairs, after = buffers.tails.of(slots), count.repeat_interleave(2), []
        starts = (start * FRAMES_PER_ID).repeat_interleave(2)
        for k, step in enumerate(decoder.steps):
            given[..., :MEL_BANDS] = x[:, None]
            past = _Past(
                PooledKv(buffers.rows[k], *rows, starts),
                GatheredTails(buffers.tails.split(gathered, k), pairs),
            )
            v = (
                decoder.estimator(given.flatten(0, 1), decoder.time_table[k], past, mask)
                .to(x.dtype)
                .view(batch, 2, frames, MEL_BANDS)
            )
            x = x + step * ((1 + GUIDANCE) * v[:, 0] - GUIDANCE * v[:, 1])
            after.append(past.tails.after)
        buffers.tails.keep(slots, after)
        return x


@dataclass
class _Past:
    """What the estimator asks of an EstimatorCache."""

    store: PooledKv
    tails: GatheredTails
