"""The language model over static buffers: slots and draws are those of `..cosyvoice.graphs`, the
layers over rows are here.

Text is encoded outside the graphs, once for a request: what they are fed are vectors. A position of
the past is known by its distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..llm.interface import SamplingRequest
from ..llm.kv_cache import TorchKVCache
from ..llm.relative_cache import TextKVCache
from ..llm.sampler import RasRule
from ..llm.text_lm import RelativeLM
from .capture import Capture
from .lm import LmSizes, StaticLm
from .lm_slots import SlotKVCache, StoredKVCache

Attend = Callable[
    [Tensor, Tensor, int], Tensor
]  # queries (rows, heads, head), one layer's store, its number -> (rows, hidden)


class PackedStack:
    """The body's layers, what their heads hear of each distance, and the one table of speech ids
    and marks.
    """

    speech_at = 0

    @torch.no_grad()
    def __init__(self, lm: RelativeLM, positions: int):
        self.dims, self.table, self.scores, self.positions = (
            lm.dims.body,
            lm.table,
            lm.scores,
            positions,
        )
        self._layers = list(lm.llm.encoders)
        lm.llm.reach(positions + 1)
        self._distances = [
            layer.self_attn.table.flip(1)[:, : positions + 1].contiguous() for layer in self._layers
        ]  # from 0 on

    @property
    def device(self) -> torch.device:
        return self.table.device

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    def run(
        self, x: Tensor, slots: Tensor, positions: Tensor, store: Tensor, attend: Attend
    ) -> Tensor:
        """x (rows, hidden) at `positions` (rows,) of `slots` (rows,); store (layers, 2, slots,
        heads, positions, head) is written. -> hidden states before the last norm (rows, hidden)
        """
        for number, (layer, kept) in enumerate(zip(self._layers, store, strict=True)):
            first, second = (getattr(layer, name) for name in layer.norms)
            own = layer.self_attn
            qkv = F.linear(first(x), own.qkv_weight, own.qkv_bias).view(
                len(x), 3, own.heads, own.width
            )
            kept[:, slots, :, positions] = qkv[:, 1:]
            x = x + own.linear_out(attend(qkv[:, 0], kept, number))
            x = x + layer.feed_forward(second(x))
        return x

    def _by_distance(self, q: Tensor, number: int, at: Tensor) -> Tensor:
        """q (rows, heads, head), at (rows, n): query minus key, below 0 what is not seen -> (heads,
        rows, n) additive
        """
        own = self._layers[number].self_attn
        heard = ((q + own.pos_bias_v) * own.width**-0.5).transpose(0, 1) @ self._distances[
            number
        ].mT
        bias = heard.gather(2, at.clamp(0, self.positions).expand(own.heads, -1, -1))
        return bias.masked_fill(at < 0, -torch.inf)

    def each_its_own(self, count: int, reach: int, lengths: Tensor) -> Attend:
        """Row i is slot i, at position lengths[i]; the store is read in place, up to `reach`
        positions.
        """
        at = lengths[:, None] - torch.arange(reach, device=self.device)

        def attend(q: Tensor, kept: Tensor, number: int) -> Tensor:
            keys, values = kept[:, :count, :, :reach]
            bias = self._by_distance(q, number, at).transpose(0, 1)[:, :, None]
            asked = (q + self._layers[number].self_attn.pos_bias_u)[:, :, None]
            return F.scaled_dot_product_attention(asked, keys, values, attn_mask=bias).reshape(
                count, -1
            )

        return attend

    def all_one_slot(self, count: int, slot: Tensor, start: Tensor) -> Attend:
        """Rows are neighbours from position `start` (1,) on of `slot` (1,)."""
        at = (start + torch.arange(count, device=self.device))[:, None] - torch.arange(
            self.positions, device=self.device
        )

        def attend(q: Tensor, kept: Tensor, number: int) -> Tensor:
            keys, values = kept.index_select(1, slot)
            asked = (q + self._layers[number].self_attn.pos_bias_u).transpose(0, 1)[None]
            seen = F.scaled_dot_product_attention(
                asked, keys, values, attn_mask=self._by_distance(q, number, at)[None]
            )
            return seen[0].transpose(0, 1).reshape(count, -1)

        return attend


class StoredText(StoredKVCache):
    """A prefix whose forks go on reading text where it ended."""

    def __init__(self, lm: StaticStackLm, kept: Tensor, text: TorchKVCache):
        super().__init__(lm, kept)
        self._text = text

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._text.nbytes

    def fork(self, room: int) -> SlotKVCache:
        past = super().fork(room)
        past.text = self._text.fork(0)
        return past


class StaticStackLm(StaticLm):
    packed = PackedStack

    def __init__(
        self,
        lm: RelativeLM,
        rule: RasRule | None = None,
        sizes: LmSizes | None = None,
        capture: Capture | None = None,
    ):
        super().__init__(lm, rule, sizes, capture)
        self._reader = lm
        self.special_embedding, self.text, self.speech = lm.special_embedding, lm.text, lm.speech

    def _embedded(self, x: Tensor) -> Tensor:
        """What the text encoder made, (1, n, hidden), is what the layers read."""
        return x[0]

    @torch.no_grad()
    def prefix(self, prompt_text: Sequence[int], speaker: Tensor | None = None) -> StoredText:
        reader = self._reader
        read = TextKVCache(
            None,
            TorchKVCache(
                reader.dims.encoder, len(prompt_text), 1, self._weights.dtype, self._weights.device
            ),
        )
        x = reader.beginning(prompt_text, speaker, read)
        self.lengths[self._workshop].zero_()
        self._feed_rows(x, self._workshop)
        return StoredText(
            self, self.store[:, :, self._workshop, :, : x.shape[1]].clone(), read.text
        )

    @torch.no_grad()
    def step(self, x: Tensor, past: SlotKVCache) -> Tensor:
        return super().step(self._reader.embedded(x, past), past)

    @torch.no_grad()
    def start(self, x: Tensor, past: SlotKVCache, draw: SamplingRequest) -> None:
        super().start(self._reader.embedded(x, past), past, draw)
