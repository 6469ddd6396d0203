"""The way from ids to mu over the rows of flow_rows.py: what of the flow's one work is a
generation's own. Here CosyVoice2's, with layers of its own past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..flow import FlowModel
from ..flow.conformer import SLOT_CONV2, SLOT_UP
from ..flow.dims import FRAMES_PER_ID
from .flow_rows import GatheredTails, PooledKv, TailStore, frames_of, visible

LOOKS_BACK = 2  # rows, as both of its convolutions with a past do


@dataclass(frozen=True)
class Ids:
    """New ids of a batch. ids (batch, n + 3), is_given (batch, n + 3, 1): not behind the last of
    all; units, ends (batch, n), past (batch, reach), slots, start, count (batch,): see
    FlowBuffers.parts.
    """

    ids: Tensor
    is_given: Tensor
    units: Tensor
    ends: Tensor
    past: Tensor
    slots: Tensor
    start: Tensor
    count: Tensor


class Encoding(Protocol):
    """by_unit: its memory by unit, (layers, units, ...) each; by_slot: by slot, (slots, ...) each;
    tables: what graphs read where it is.
    """

    by_unit: Sequence[Tensor]
    by_slot: Sequence[Tensor]
    tables: Sequence[Tensor]

    def __init__(self, flow: Any, slots: int, units: int): ...

    def __call__(self, ids: Ids) -> Tensor:
        """-> mu (batch, 2n, 80)"""


class EncoderWork:
    def __init__(self, flow: FlowModel, slots: int, units: int):
        d, like = flow.dims, {"dtype": flow.dtype, "device": flow.device}
        self.flow = flow
        self.low = torch.zeros(d.encoder_blocks, units, 2 * d.encoder_dim, **like)
        self.high = torch.zeros(
            d.up_encoder_blocks, units * FRAMES_PER_ID, 2 * d.encoder_dim, **like
        )
        self.tails = TailStore([d.encoder_dim] * 2, LOOKS_BACK, slots, 1, 1, **like)
        self.by_unit, self.by_slot = (
            (self.low, self.high.unflatten(1, (-1, FRAMES_PER_ID))),
            (self.tails.data,),
        )

    @property
    def tables(self) -> list[Tensor]:
        return [
            layer.self_attn.table
            for layer in (*self.flow.encoder.encoders, *self.flow.encoder.up_encoders)
        ]

    def __call__(self, ids: Ids) -> Tensor:
        encoder, reach = self.flow.encoder, ids.past.shape[1]
        tails = GatheredTails(self.tails.split(self.tails.of(ids.slots), 0), ids.count)
        x = encoder.pre_lookahead_layer(
            encoder.embed(self.flow.input_embedding(ids.ids)) * ids.is_given, tails
        )
        store, mask = (
            PooledKv(self.low, ids.past, ids.units),
            visible(reach, ids.start, ids.ends, x),
        )
        for i, layer in enumerate(encoder.encoders):
            x = layer(x, store, i, mask)
        x = encoder.up_embed(encoder.up_layer(x, tails))
        ends = (ids.ends * FRAMES_PER_ID).repeat_interleave(FRAMES_PER_ID, 1)
        store = PooledKv(self.high, frames_of(ids.past), frames_of(ids.units))
        mask = visible(reach * FRAMES_PER_ID, ids.start * FRAMES_PER_ID, ends, x)
        for i, layer in enumerate(encoder.up_encoders):
            x = layer(x, store, i, mask)
        self.tails.keep(ids.slots, [[tails.after[SLOT_CONV2], tails.after[SLOT_UP]]])
        return self.flow.encoder_proj(encoder.after_norm(x))
