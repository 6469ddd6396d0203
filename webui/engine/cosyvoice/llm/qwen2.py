"""Text and speech ids in, scores of the next speech id out: a Qwen2 body with a cache per request.

A pure function of its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoint import assign, bare
from ..mkldnn_linear import columns_first, prepack_linears
from .decode import MAX_IDS_PER_TEXT_ID, MIN_IDS_PER_TEXT_ID, HostDecoding, Sample, StopCriteria
from .dims import LmDims
from .interface import KVCache, LanguageModel
from .kv_cache import GROWTH_TOKENS, TorchKVCache

SOS, TASK = 0, 1  # rows of llm_embedding


class RmsNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(
            x, self.weight.shape, self.weight, self.eps
        )  # one kernel; sums in fp32 whatever the dtype


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Half-split rotation of (batch, heads, n, head_size)."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Attention(nn.Module):
    def __init__(self, dims: LmDims):
        super().__init__()
        self.dims = dims
        kv = dims.kv_heads * dims.head_size
        self.q_proj = nn.Linear(dims.hidden, dims.hidden)
        self.k_proj = nn.Linear(dims.hidden, kv)
        self.v_proj = nn.Linear(dims.hidden, kv)
        self.o_proj = nn.Linear(dims.hidden, dims.hidden, bias=False)

    def forward(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        visible: Tensor | None,
        caches: Sequence[TorchKVCache],
        layer: int,
    ) -> Tensor:
        """x: (batch, n, hidden), the batch divided evenly among the caches, each part behind its
        own past.
        The query heads of one key head stand in the row axis, so keys are never copied.
        """
        d = self.dims
        batch, n, _ = x.shape
        group = d.heads // d.kv_heads
        q = rotate(self.q_proj(x).view(batch, n, d.heads, d.head_size).transpose(1, 2), *turn)
        k = rotate(self.k_proj(x).view(batch, n, d.kv_heads, d.head_size).transpose(1, 2), *turn)
        v = self.v_proj(x).view(batch, n, d.kv_heads, d.head_size).transpose(1, 2)
        q = q.reshape(batch, d.kv_heads, group * n, d.head_size)
        mask = None if visible is None else visible.repeat(group, 1)
        parts = zip(caches, *(x.chunk(len(caches)) for x in (q, k, v)), strict=True)
        outs = [
            F.scaled_dot_product_attention(own, *cache.put(layer, new_k, new_v), attn_mask=mask)
            for cache, own, new_k, new_v in parts
        ]
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return self.o_proj(
            out.reshape(batch, d.heads, n, d.head_size).transpose(1, 2).reshape(batch, n, d.hidden)
        )


class Mlp(nn.Module):
    def __init__(self, dims: LmDims):
        super().__init__()
        self.gate_proj = nn.Linear(dims.hidden, dims.intermediate, bias=False)
        self.up_proj = nn.Linear(dims.hidden, dims.intermediate, bias=False)
        self.down_proj = nn.Linear(dims.intermediate, dims.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, dims: LmDims):
        super().__init__()
        self.self_attn, self.mlp = Attention(dims), Mlp(dims)
        self.input_layernorm = RmsNorm(dims.hidden, dims.rms_eps)
        self.post_attention_layernorm = RmsNorm(dims.hidden, dims.rms_eps)

    def forward(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        visible: Tensor | None,
        caches: Sequence[TorchKVCache],
        layer: int,
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, visible, caches, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """Embeddings, layers and the last norm, under upstream's key names (`llm.model.model.*`)."""

    def __init__(self, dims: LmDims):
        super().__init__()
        self.embed_tokens = nn.Embedding(dims.text_rows, dims.hidden)
        self.layers = nn.ModuleList(Layer(dims) for _ in range(dims.layers))
        self.norm = RmsNorm(dims.hidden, dims.rms_eps)


class Qwen2LM(HostDecoding, nn.Module):
    """The language model.

    Every method is a function of its arguments and the weights; what a request has said so far is
    in its TorchKVCache.
    """

    def __init__(self, dims: LmDims):
        super().__init__()
        self.dims = dims
        self.llm_embedding = nn.Embedding(2, dims.hidden)
        self.speech_embedding = nn.Embedding(dims.rows, dims.hidden)
        self.llm_decoder = nn.Linear(dims.hidden, dims.rows)
        self.llm = nn.ModuleDict({"model": nn.ModuleDict({"model": Body(dims)})})

    @classmethod
    def of(
        cls,
        dims: LmDims,
        state: Mapping[str, Tensor],
        dtype: torch.dtype | None = None,
        device: str = "cpu",
    ) -> Qwen2LM:
        """From a state dict with upstream's key names.

        Raises NotReady naming the first key or shape that does not fit.
        """
        with bare():
            model = cls(dims)
        return assign(model, dict(state), "llm.pt").to(device=device, dtype=dtype).pack()

    def pack(self) -> Self:
        """Once, after the weights are in place, with their final dtype and device: matrices in the
        order in which a CPU reads them.
        """
        if self.llm_decoder.weight.dtype == torch.bfloat16:
            prepack_linears(self.body.layers)
        for wide in (
            *(m for layer in self.body.layers for m in (layer.mlp.gate_proj, layer.mlp.up_proj)),
            self.llm_decoder,
        ):
            if isinstance(wide, nn.Linear):
                columns_first(wide)
        return self

    @property
    def body(self) -> Body:
        return self.llm["model"]["model"]

    def new_cache(self, capacity: int = GROWTH_TOKENS, batch: int = 1) -> TorchKVCache:
        weight = self.llm_decoder.weight
        return TorchKVCache(self.dims, capacity, batch, weight.dtype, weight.device)

    def _ids(self, ids: Sequence[int]) -> Tensor:
        return torch.as_tensor(
            ids, dtype=torch.long, device=self.llm_decoder.weight.device
        ).reshape(1, -1)

    def special_embedding(self, which: int) -> Tensor:
        """The embedding of SOS or TASK, (1, 1, hidden)."""
        return self.llm_embedding(self._ids([which]))

    def text(self, ids: Sequence[int]) -> Tensor:
        return self.body.embed_tokens(self._ids(ids))

    def speech(self, ids: Sequence[int]) -> Tensor:
        return self.speech_embedding(self._ids(ids))

    @torch.no_grad()
    def forward(self, x: Tensor, cache: TorchKVCache) -> Tensor:
        """Run (batch, n, hidden) embeddings behind the cache's past, add them to it, return all
        hidden states after the last norm.
        """
        n, past = x.shape[1], cache.length
        visible = (
            None
            if n == 1
            else torch.ones(n, past + n, dtype=torch.bool, device=x.device).tril(past)
        )
        return self._through(x, visible, (cache,))

    def _through(self, x: Tensor, visible: Tensor | None, caches: Sequence[TorchKVCache]) -> Tensor:
        n = x.shape[1]
        for cache in caches:
            cache.reserve(n)
        turn = self._turn([cache.length for cache in caches], n, x)
        for index, layer in enumerate(self.body.layers):
            x = layer(x, turn, visible, caches, index)
        for cache in caches:
            cache.advance(n)
        return self.body.norm(x)

    @torch.no_grad()
    def scores(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., rows) log-probabilities in fp32."""
        return self.llm_decoder(hidden).float().log_softmax(-1)

    def step(self, x: Tensor, cache: TorchKVCache) -> Tensor:
        """Feed (batch, n, hidden); the scores after the last position, (batch, rows)."""
        return self.scores(self.forward(x, cache)[:, -1])

    @torch.no_grad()
    def step_many(self, ids: Sequence[int], pasts: Sequence[TorchKVCache]) -> Tensor:
        """One speech id to each of b requests, each behind its own past -> (b, rows): all weights
        are read once for all of them.
        """
        if len(pasts) == 1:
            return self.step(self.speech(ids), pasts[0])
        return self.scores(self._through(self.speech(ids).transpose(0, 1), None, pasts)[:, -1])

    def prefix(self, prompt_text: Sequence[int]) -> TorchKVCache:
        """Cache of [sos] ++ prompt text: all of a voice that its requests can share, since the
        target text follows it. Fork it per request.
        """
        cache = self.new_cache(1 + len(prompt_text))
        self.forward(torch.cat((self.special_embedding(SOS), self.text(prompt_text)), 1), cache)
        return cache

    def prefill_embeddings(self, text: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        """What follows a prefix: E(text) ++ [task] ++ E(prompt speech), (1, n, hidden)."""
        return torch.cat(
            (self.text(text), self.special_embedding(TASK), self.speech(prompt_speech)), 1
        )

    def _turn(self, pasts: Sequence[int], n: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (len(pasts), 1, n, head_size), of the n positions behind each past."""
        size = self.dims.head_size
        rates = self.dims.rope_theta ** (
            -torch.arange(0, size, 2, dtype=torch.float32, device=like.device) / size
        )
        at = torch.tensor(pasts, dtype=torch.float32, device=like.device)[:, None] + torch.arange(
            n, dtype=torch.float32, device=like.device
        )
        angles = at[:, None, :, None] * rates
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def generate(
    lm: LanguageModel,
    cache: KVCache,
    text: Sequence[int],
    prompt_speech: Sequence[int],
    sample: Sample | StopCriteria,
) -> Iterator[int]:
    """Speech ids 0..S-1 for `text`, one model call each, behind `cache` (a fork of a prefix, used
    up by this call).
    sample: of each id, under the usual rules of length, or rules of its own. Closing the iterator
      stops the work.
    """
    drawing = (
        sample
        if isinstance(sample, StopCriteria)
        else StopCriteria(
            lm.dims, sample, MIN_IDS_PER_TEXT_ID * len(text), MAX_IDS_PER_TEXT_ID * len(text)
        )
    )
    cache.reserve(len(text) + 1 + len(prompt_speech) + drawing.most)
    scores = lm.step(lm.prefill_embeddings(text, prompt_speech), cache)
    while not drawing.is_over:
        chosen = drawing.draw(scores[0])
        if chosen is None:
            return
        yield chosen
        if not drawing.is_over:
            scores = lm.step(lm.speech([chosen]), cache)
