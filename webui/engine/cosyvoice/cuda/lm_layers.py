"""The language model's layers over rows: each row is one new position of some slot.

Fused matrices, no Python objects per request.

The keys and values of all slots are one buffer; a row writes its own and attends to its slot's,
masked to what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..llm.dims import LmDims
from ..llm.qwen2 import Layer, Qwen2LM

Attend = Callable[
    [Tensor, Tensor], Tensor
]  # queries (rows, heads, head), one layer's store -> (rows, heads * head)


@dataclass(frozen=True)
class PackedLayer:
    first_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor  # transposed, for addmm
    second_norm: Tensor
    gate_up: Tensor
    down: Tensor  # transposed

    @classmethod
    def of(cls, layer: Layer) -> PackedLayer:
        attention, mlp = layer.self_attn, layer.mlp
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        return cls(
            layer.input_layernorm.weight,
            torch.cat([p.weight for p in parts]),
            torch.cat([p.bias for p in parts]),
            attention.o_proj.weight.mT,
            layer.post_attention_layernorm.weight,
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
            mlp.down_proj.weight.mT,
        )


class PackedLm:
    """Weights and constant tables.

    All embeddings are one table: text ids, the two marks from `marks_at`, speech ids from
    `speech_at`.
    """

    @torch.no_grad()
    def __init__(self, lm: Qwen2LM, positions: int):
        self.dims: LmDims = lm.dims
        self.table = torch.cat(
            [lm.body.embed_tokens.weight, lm.llm_embedding.weight, lm.speech_embedding.weight]
        )
        self.marks_at = lm.dims.text_rows
        self.speech_at = self.marks_at + lm.llm_embedding.weight.shape[0]
        self.layers = [PackedLayer.of(layer) for layer in lm.body.layers]
        self.norm, self.head, self.head_bias = (
            lm.body.norm.weight,
            lm.llm_decoder.weight,
            lm.llm_decoder.bias,
        )
        size = lm.dims.head_size
        rates = lm.dims.rope_theta ** (
            -torch.arange(0, size, 2, dtype=torch.float32, device=self.device) / size
        )
        angles = torch.arange(positions, dtype=torch.float32, device=self.device)[:, None] * rates
        angles = torch.cat((angles, angles), -1)[:, None]
        self.cos, self.sin = (
            angles.cos().to(self.dtype),
            angles.sin().to(self.dtype),
        )  # (positions, 1, head)

    @property
    def device(self) -> torch.device:
        return self.head.device

    @property
    def dtype(self) -> torch.dtype:
        return self.head.dtype

    def run(
        self, x: Tensor, slots: Tensor, positions: Tensor, store: Tensor, attend: Attend
    ) -> Tensor:
        """x (rows, hidden) at `positions` (rows,) of `slots` (rows,); store (layers, 2, slots,
        kv_heads, positions, head) is written. -> hidden states after the last norm (rows, hidden)
        """
        d = self.dims
        turned_heads = d.heads + d.kv_heads
        cos, sin = self.cos[positions], self.sin[positions]
        for layer, kept in zip(self.layers, store):
            qkv = F.linear(self._norm(x, layer.first_norm), layer.qkv, layer.qkv_bias).view(
                len(x), -1, d.head_size
            )
            turned = qkv[:, :turned_heads]
            left, right = turned.chunk(2, -1)
            turned = turned * cos + torch.cat((-right, left), -1) * sin
            kept[:, slots, :, positions] = torch.stack(
                (turned[:, d.heads :], qkv[:, turned_heads:]), 1
            )
            x = torch.addmm(x, attend(turned[:, : d.heads], kept), layer.out)
            gate, up = F.linear(self._norm(x, layer.second_norm), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down)
        return self._norm(x, self.norm)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.dims.rms_eps)

    def scores(self, hidden: Tensor) -> Tensor:
        """(rows, hidden) -> log-probabilities (rows, dims.rows) fp32"""
        return F.linear(hidden, self.head, self.head_bias).float().log_softmax(-1)

    def _mask(self, visible: Tensor) -> Tensor:
        """Additive, made once for all layers."""
        return torch.zeros(visible.shape, dtype=self.dtype, device=self.device).masked_fill_(
            ~visible, -torch.inf
        )

    def each_its_own(self, count: int, reach: int, lengths: Tensor) -> Attend:
        """Row i is slot i, at position lengths[i]; the store is read in place, up to `reach`
        positions.
        """
        d = self.dims
        mask = self._mask(torch.arange(reach, device=self.device) <= lengths[:, None])[
            :, None, None
        ]

        def attend(q: Tensor, kept: Tensor) -> Tensor:
            keys, values = kept[:, :count, :, :reach]
            q = q.reshape(count, d.kv_heads, d.heads // d.kv_heads, d.head_size)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask).view(count, -1)

        return attend

    def all_one_slot(self, count: int, slot: Tensor, start: Tensor) -> Attend:
        """Rows are neighbours from position `start` (1,) on of `slot` (1,)."""
        d = self.dims
        group = d.heads // d.kv_heads
        number = torch.arange(count, device=self.device)
        mask = self._mask(
            torch.arange(len(self.cos), device=self.device) <= (start + number)[:, None]
        ).repeat(group, 1)

        def attend(q: Tensor, kept: Tensor) -> Tensor:
            keys, values = kept.index_select(1, slot)
            q = q.transpose(0, 1).reshape(
                1, d.kv_heads, group * count, d.head_size
            )  # a key head's queries share its keys
            out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            return out.view(d.heads, count, d.head_size).transpose(0, 1).reshape(count, -1)

        return attend
