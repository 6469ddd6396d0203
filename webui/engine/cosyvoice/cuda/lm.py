"""The language model with its decode step recorded: one id for every row, drawn on the device.

Prefill, and all that a request does before it is started, is the plain model's; its keys and values
are copied into a slot then. A slot is free again when its past is lost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....errors import EngineFault
from ....messages import message
from ..llm.interface import DecodedTokens, SamplingRequest
from ..llm.kv_cache import TorchKVCache
from ..llm.qwen2 import Qwen2LM, rotate
from ..llm.relative_cache import TextKVCache
from ..llm.sampler import RasRule
from ..llm.text_lm import RelativeLM
from .capture import Allocator, Capture, EagerCapture, Graphs, fit, upload
from .sampling import NONE, DeviceSampler

# positions behind a slot's last: padding writes to the first of them, nobody reads it; eight,
# because attention likes multiples
SPARE = 8


@dataclass(frozen=True)
class LmSizes:
    """slots: batch buckets, the last is how many requests there may be. reaches: attention lengths
    of the decode graphs, the last is how many positions a request may have. run: most steps of one
    run.
    """

    slots: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    reaches: tuple[int, ...] = (256, 512, 1024, 2048)
    run: int = 32

    @property
    def positions(self) -> int:
        return self.reaches[-1]


class Rows(Protocol):
    """A generation's layers over rows, one new position each."""

    def scores(self, ids: Tensor, at: Tensor, store: Tensor, reach: int) -> Tensor:
        """Speech ids (rows,) at positions `at` (rows,) of the first slots of store (layers, 2,
        slots, kv_heads, positions, head), which is written, and read in place up to `reach`
        positions -> log-probabilities (rows, V) fp32
        """


class Qwen2Rows:
    """With fused matrices: four products a layer instead of seven."""

    @torch.no_grad()
    def __init__(self, lm: Qwen2LM, positions: int):
        self.lm = lm
        self.fused = []
        for layer in lm.body.layers:
            attention, mlp = layer.self_attn, layer.mlp
            parts = (attention.q_proj, attention.k_proj, attention.v_proj)
            biases = torch.cat([part.bias for part in parts])
            self.fused.append((fuse(*parts), biases, fuse(mlp.gate_proj, mlp.up_proj)))
        turn = lm._turn([0], positions + SPARE, lm.llm_decoder.weight)
        self.cos, self.sin = (part[0, 0, :, None] for part in turn)  # (positions, 1, head)

    def scores(self, ids: Tensor, at: Tensor, store: Tensor, reach: int) -> Tensor:
        d, count = self.lm.dims, len(ids)
        turned_heads = d.heads + d.kv_heads
        rows, cos, sin = torch.arange(count, device=at.device), self.cos[at], self.sin[at]
        x = self.lm.speech_embedding(ids)
        mask = x.new_zeros(count, reach).masked_fill_(
            torch.arange(reach, device=at.device) > at[:, None], -torch.inf
        )[:, None, None]
        for layer, (qkv, bias, gate_up), layer_store in zip(self.lm.body.layers, self.fused, store):
            new = F.linear(layer.input_layernorm(x), qkv, bias).view(count, -1, d.head_size)
            turned = rotate(new[:, :turned_heads], cos, sin)
            layer_store[:, rows, :, at] = torch.stack(
                (turned[:, d.heads :], new[:, turned_heads:]), 1
            )
            keys, values = layer_store[:, :count, :, :reach]
            q = turned[:, : d.heads].reshape(count, d.kv_heads, -1, d.head_size)
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask).view(
                count, -1
            )
            x = torch.addmm(x, attended, layer.self_attn.o_proj.weight.mT)
            gate, up = F.linear(layer.post_attention_layernorm(x), gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer.mlp.down_proj.weight.mT)
        return self.lm.scores(self.lm.body.norm(x))


def fuse(*layers: nn.Linear) -> Tensor:
    """One matrix of several; theirs are parts of it from now on."""
    joined = torch.cat([layer.weight for layer in layers])
    for layer, part in zip(layers, joined.split([len(layer.weight) for layer in layers])):
        layer.weight = nn.Parameter(part, requires_grad=False)
    return joined


class RelativeRows:
    """A position of the past is known by its distance."""

    @torch.no_grad()
    def __init__(self, lm: RelativeLM, positions: int):
        self.lm = lm
        lm.llm.reach(positions + 1)
        self.distances = [
            layer.self_attn.table.flip(1)[:, : positions + 1].contiguous()
            for layer in lm.llm.encoders
        ]  # from 0 on

    def scores(self, ids: Tensor, at: Tensor, store: Tensor, reach: int) -> Tensor:
        count, rows = len(ids), torch.arange(len(ids), device=at.device)
        far = at[:, None] - torch.arange(reach, device=at.device)  # below 0: not seen
        x = self.lm.table[ids]
        for layer, distances, layer_store in zip(self.lm.llm.encoders, self.distances, store):
            first, second = (getattr(layer, name) for name in layer.norms)
            own = layer.self_attn
            new = F.linear(first(x), own.qkv_weight, own.qkv_bias).view(
                count, 3, own.heads, own.width
            )
            layer_store[:, rows, :, at] = new[:, 1:]
            keys, values = layer_store[:, :count, :, :reach]
            by_distance = ((new[:, 0] + own.pos_bias_v) * own.width**-0.5).transpose(0, 1)
            bias = (by_distance @ distances.mT).gather(
                2, far.clamp(min=0).expand(own.heads, -1, -1)
            )
            bias = bias.masked_fill(far < 0, -torch.inf).transpose(0, 1)[:, :, None]
            q = (new[:, 0] + own.pos_bias_u)[:, :, None]
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
            x = x + own.linear_out(attended.reshape(count, -1))
            x = x + layer.feed_forward(second(x))
        return self.lm.scores(x)


@dataclass
class Row:
    """A started request. left: ids it may still draw."""

    slot: int
    length: int
    left: int


class CapturedLM:
    """A LanguageModel that draws on the device. Used from one thread, on one stream."""

    max_steps = 8

    def __init__(
        self,
        lm: Qwen2LM | RelativeLM,
        rule: RasRule | None = None,
        sizes: LmSizes | None = None,
        capture: Capture | None = None,
    ):
        self.lm, self.dims, self.sizes = lm, lm.dims, sizes or LmSizes()
        self.special_embedding, self.text, self.speech = lm.special_embedding, lm.text, lm.speech
        self.prefill_embeddings, self.prefix = lm.prefill_embeddings, lm.prefix
        self.new_cache, self.step, self.step_many = lm.new_cache, lm.step, lm.step_many
        self.positions = self.sizes.positions
        is_qwen2, count = isinstance(lm, Qwen2LM), self.sizes.slots[-1]
        self.layers: Rows = (Qwen2Rows if is_qwen2 else RelativeRows)(lm, self.positions)
        d, like = lm.dims if is_qwen2 else lm.dims.body, lm.llm_decoder.weight
        self.store = like.new_zeros(
            d.layers, 2, count, d.kv_heads, self.positions + SPARE, d.head_size
        )
        self.lengths = torch.zeros(count, dtype=torch.long, device=like.device)
        self.last = torch.zeros(count, lm.dims.rows, device=like.device)  # scores of each slot
        self.active_mask = torch.zeros(count, dtype=torch.bool, device=like.device)
        self.log = torch.full((self.sizes.run, count), NONE, device=like.device)
        self.at = torch.zeros(1, dtype=torch.long, device=like.device)  # row of the log
        self.draws = DeviceSampler(count, self.positions, rule or RasRule(), lm.dims, like.device)
        self.slots = Allocator(count, message("gpu_memory.requests"))
        self.rows: weakref.WeakKeyDictionary[TorchKVCache | TextKVCache, Row] = (
            weakref.WeakKeyDictionary()
        )
        self.graphs = Graphs("language model", self.decode_step, capture or EagerCapture())

    def record(self, on_progress: Callable[[float], None] = lambda share: None) -> None:
        """With nothing wanted: no request is changed."""
        self.active_mask.zero_()
        sizes = [(count, reach) for count in self.sizes.slots for reach in self.sizes.reaches]
        self.graphs.record(sizes[::-1], on_progress)

    @torch.no_grad()
    def decode_step(self, count: int, reach: int) -> None:
        """One step of the first `count` slots: draw an id from the scores of each wanted one, note
        it, feed it, and keep its scores.
        """
        lengths, last = self.lengths[:count], self.last[:count]
        ids = self.draws.next(last, self.active_mask[:count])
        self.log[:, :count].index_copy_(0, self.at, ids[None])
        self.at.copy_((self.at + 1) % self.sizes.run)
        goes_on = (ids >= 0) & (ids != self.dims.end)
        fed = ids.clamp(min=0, max=self.dims.speech_codes - 1)
        scores = self.layers.scores(fed, lengths.clamp(max=self.positions), self.store, reach)
        last.copy_(torch.where(goes_on[:, None], scores, last))
        lengths += goes_on

    @torch.no_grad()
    def start(
        self, x: Tensor, past: TorchKVCache | TextKVCache, draw: SamplingRequest
    ) -> DecodedTokens:
        """Feed an opening behind `past` and get ready to draw; `draw.most` is cut to what a slot
        holds. Raises EngineFault when a slot does not hold the least, or none is free.
        """
        if past.length + x.shape[1] + draw.least > self.positions:
            raise EngineFault("too_long.language_model")
        (slot,) = self.slots.take(1)
        weakref.finalize(past, self.slots.give_back, [slot])
        self.last[slot].copy_(self.lm.step(x, past)[0])
        length = past.length
        self.store[:, :, slot, :, :length].copy_(past.release()[:, :, 0])
        self.lengths[slot].fill_(length)
        row = self.rows[past] = Row(slot, length, min(draw.most, self.positions - length))
        self.draws.begin(slot, replace(draw, most=row.left))
        return DecodedTokens([], False)

    @torch.no_grad()
    def decode(
        self, pasts: Sequence[TorchKVCache | TextKVCache], steps: int = 1
    ) -> list[DecodedTokens]:
        """`steps` ids (fewer where a request ends) for each of `pasts`, all started."""
        if not 1 <= steps <= self.sizes.run:
            raise ValueError(f"a run has 1 to {self.sizes.run} steps, got {steps}")
        rows = [self.rows[past] for past in pasts]
        active_slots = {row.slot for row in rows}
        upload(self.active_mask, [slot in active_slots for slot in range(len(self.active_mask))])
        self.at.zero_()
        furthest = max(min(row.length + steps, self.positions) for row in rows)
        size = fit(self.sizes.slots, max(active_slots) + 1), fit(self.sizes.reaches, furthest)
        for _ in range(steps):
            self.graphs(*size)
        ids_log = self.log[:steps].cpu()  # waits
        return [self._to_tokens(row, ids_log[:, row.slot].tolist()) for row in rows]

    def _to_tokens(self, row: Row, column: list[int]) -> DecodedTokens:
        ids = [i for i in column if i not in (NONE, self.dims.end)]
        row.left -= len(ids)
        row.length += len(ids)
        return DecodedTokens(ids, len(ids) < len(column) or row.left == 0)
