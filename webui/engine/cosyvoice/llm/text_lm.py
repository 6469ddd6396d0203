"""Text and speech ids in, scores of the next speech id out: a text encoder and 14 layers, both with
relative positions and a cache.

It looks its embeddings up itself: what a request holds are row numbers, text ids first, then speech
ids, then the two marks. Only then can the text encoder, which every text id passes, go on behind a
prompt text that it has read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..checkpoint import assign, bare
from ..dims_v1 import LmDimsV1
from .decode import HostDecoding
from .kv_cache import GROWTH_TOKENS, TorchKVCache
from .qwen2 import SOS, TASK
from .relative_cache import TextKVCache
from .relative_stack import RelativeStack

READY = 1024  # positions that need no growing of tables: 15 s of speech behind a prompt


class TextLM(HostDecoding, nn.Module):
    """How ids become what the layers of the body read, whoever computes those."""

    def __init__(self, dims: LmDimsV1, layers: int | None = None):
        """layers: of the body that are here, all of them when None."""
        super().__init__()
        self.dims = dims
        body = dims.body if layers is None else replace(dims.body, layers=layers)
        self.text_embedding = nn.Embedding(dims.text_rows, dims.text_width)
        self.text_encoder = RelativeStack(
            dims.text_width, dims.encoder, ("norm_mha", "norm_ff"), F.silu
        )
        self.text_encoder_affine_layer = nn.Linear(dims.encoder.hidden, dims.body.hidden)
        self.llm_embedding = nn.Embedding(2, dims.body.hidden)
        self.speech_embedding = nn.Embedding(dims.speech_codes, dims.body.hidden)
        self.spk_embed_affine_layer = nn.Linear(dims.vector, dims.body.hidden)
        self.llm = RelativeStack(dims.body.hidden, body, ("norm1", "norm2"), F.relu, F.relu)
        self.llm_decoder = nn.Linear(dims.body.hidden, dims.rows)

    @classmethod
    def of(
        cls,
        dims: LmDimsV1,
        state: Mapping[str, Tensor],
        dtype: torch.dtype | None = None,
        device: str = "cpu",
    ) -> Self:
        """From a state dict with upstream's key names.

        Raises NotReady naming the first key or shape that does not fit.
        """
        with bare():
            model = cls(dims)
        return assign(model, dict(state), "llm.pt").to(device=device, dtype=dtype).pack()

    @torch.no_grad()
    def pack(self) -> Self:
        """Once, with the final dtype and device.

        Speech ids and marks are embedded here and never again.
        """
        for layer in (*self.text_encoder.encoders, *self.llm.encoders):
            layer.self_attn.pack()
        self.llm.reach(READY)
        rows = torch.cat([self.speech_embedding.weight, self.llm_embedding.weight])
        self.table = self.llm.embedded(rows[None])[0]
        del self.speech_embedding, self.llm_embedding
        return self.eval().requires_grad_(False)

    @property
    def _like(self) -> Tensor:
        return self.llm_decoder.weight

    # ---- row numbers -----------------------------------------------------------------------------
    def special_embedding(self, which: int) -> Tensor:
        return self._rows([which], self.dims.text_rows + self.dims.speech_codes)

    def text(self, ids: Sequence[int]) -> Tensor:
        return self._rows(ids, 0)

    def speech(self, ids: Sequence[int]) -> Tensor:
        return self._rows(ids, self.dims.text_rows)

    def _rows(self, ids: Sequence[int], first: int) -> Tensor:
        return torch.as_tensor(ids, dtype=torch.long).reshape(1, -1, 1) + first

    def prefill_embeddings(self, text: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        return torch.cat(
            (self.text(text), self.special_embedding(TASK), self.speech(prompt_speech)), 1
        )

    # ---- embeddings ------------------------------------------------------------------------------
    def new_cache(self, capacity: int = GROWTH_TOKENS) -> TextKVCache:
        like = self._like
        return TextKVCache(
            *(
                TorchKVCache(dims, capacity, 1, like.dtype, like.device)
                for dims in (self.dims.body, self.dims.encoder)
            )
        )

    def encoded(self, ids: Tensor, past: TorchKVCache) -> Tensor:
        """Text ids (n,) behind those of `past` -> (1, n, hidden of the body)"""
        x = self.text_encoder.embedded(self.text_embedding(ids.to(self._like.device))[None])
        return self.text_encoder_affine_layer(
            self.text_encoder.after_norm(self.text_encoder(x, [past]))
        )

    def embedded(self, x: Tensor, past: TextKVCache) -> Tensor:
        """Row numbers (1, n, 1) -> (1, n, hidden). The task's mark ends the text."""
        rows, texts = x.reshape(-1), self.dims.text_rows
        is_text = rows < texts
        out = self.table[(rows - texts).clamp(min=0).to(self.table.device)]
        if is_text.any():
            out[is_text.to(out.device)] = self.llm.embedded(self.encoded(rows[is_text], past.text))[
                0
            ]
        if bool((x == self.special_embedding(TASK)).any()):
            past.text = None  # all text is read
        return out[None]

    def prefix(self, prompt_text: Sequence[int], speaker: Tensor | None = None) -> TextKVCache:
        """The past behind [start], [speaker], prompt text: what all requests of a voice share.
        speaker: (192,), None: no such position.
        """
        with torch.no_grad():
            past = self.new_cache(2 + len(prompt_text))
            return self._behind(self.beginning(prompt_text, speaker, past), past)

    def beginning(
        self, prompt_text: Sequence[int], speaker: Tensor | None, past: TextKVCache
    ) -> Tensor:
        """As `prefix`, what the layers of the body read: (1, n, hidden)"""
        parts = [self.embedded(self.special_embedding(SOS), past)]
        if speaker is not None:
            vector = F.normalize(speaker.reshape(1, 1, -1).to(self._like), dim=-1)
            parts.append(self.llm.embedded(self.spk_embed_affine_layer(vector)))
        if len(prompt_text):
            parts.append(self.embedded(self.text(prompt_text), past))
        return torch.cat(parts, 1)

    def _behind(self, x: Tensor, past: TextKVCache) -> TextKVCache:
        self.llm(x, [past.body])
        return past


class RelativeLM(TextLM):
    """The LanguageModel of llm/interface.py in torch.

    Every method is a function of its arguments and the weights.
    """

    @torch.no_grad()
    def step(self, x: Tensor, past: TextKVCache) -> Tensor:
        """Row numbers (1, n, 1) behind `past`; log-probabilities after the last position, (1, rows)
        fp32.
        """
        hidden = self.embedded(x, past)
        return self.scores(self.llm(hidden, [past.body])[:, -1])

    @torch.no_grad()
    def step_many(self, ids: Sequence[int], pasts: Sequence[TextKVCache]) -> Tensor:
        """One speech id to each of b requests, each behind its own past -> (b, rows): all weights
        are read once for all of them.
        """
        x = self.table[torch.as_tensor(ids, dtype=torch.long, device=self.table.device)][:, None]
        return self.scores(self.llm(x, [past.body for past in pasts])[:, -1])

    def scores(self, hidden: Tensor) -> Tensor:
        """(..., hidden) before the last norm -> (..., rows) log-probabilities in fp32."""
        return self.llm_decoder(self.llm.after_norm(hidden)).float().log_softmax(-1)
