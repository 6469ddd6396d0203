"""The flow model: speech ids, prompt mel and speaker vector to mel. Weights only; every request's memory is in state.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ....errors import BadInput
from ..weights import assign
from .arranged import arrange
from .blocks import Blocks
from .dims import FRAMES_PER_ID, LOOKAHEAD_IDS, MAX_FRAMES, MEL_BANDS, FlowDims
from .encoder import Encoder, EncoderPast
from .estimator import EstimatorPast
from .kv import Rooms
from .solver import Decoder

KEPT_FRAMES = 1000  # memory of ended requests: what the memory plan counts for one stream


@dataclass
class Work:
    """Arguments of `FlowModel.advance`, of one request."""

    ids: torch.Tensor
    start: int
    final: bool
    prompt_mel: torch.Tensor
    speaker: torch.Tensor
    encoder_past: EncoderPast
    pasts: list[EstimatorPast] | None
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


class FlowModel(nn.Module):
    def __init__(self, dims: FlowDims):
        super().__init__()
        self.dims = dims
        self.input_embedding = nn.Embedding(dims.speech_token_size, dims.input_size)
        self.spk_embed_affine_layer = nn.Linear(dims.spk_embed_dim, MEL_BANDS)
        self.encoder = Encoder(dims)
        self.encoder_proj = nn.Linear(dims.encoder_dim, MEL_BANDS)
        self.decoder = Decoder(dims)
        self.rooms = Rooms(0)

    @classmethod
    def of(cls, dims: FlowDims, state: Mapping[str, torch.Tensor], dtype: torch.dtype = torch.float32, device: str = "cpu") -> FlowModel:
        """From a state dict with upstream's key names. Raises NotReady naming the first key or shape that does not fit."""
        with torch.device("meta"):
            model = cls(dims)
        return assign(model, dict(state), "flow.pt").to(device=device, dtype=dtype).pack()

    @torch.inference_mode()
    def pack(self) -> FlowModel:
        """Once, after the weights are in place, with their final dtype and device: fused matrices and constant tables."""
        for module in list(self.modules()):
            if module is not self and hasattr(module, "pack"):
                module.pack()
        for stage in self.decoder.estimator.stages:
            arrange(stage[1])
        if self.device.type == "cpu":
            self.rooms = Rooms(KEPT_FRAMES * self.dims.bytes_per_frame(self.encoder_proj.weight.element_size()))
        return self.eval().requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.encoder_proj.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.encoder_proj.weight.device

    def speaker(self, embedding: torch.Tensor) -> torch.Tensor:
        """(192,) or (1, 192) -> (1, 80)"""
        return self.spk_embed_affine_layer(F.normalize(embedding.reshape(1, -1).to(self.encoder_proj.weight), dim=1))

    def encode(self, ids: torch.Tensor, final: bool, past: EncoderPast, blocks: Blocks | None) -> torch.Tensor:
        """New ids (rows,), not final with 3 more as context -> mu (1, 2n, 80)"""
        if int(ids.max()) >= self.dims.speech_token_size:
            raise ValueError(f"speech id {int(ids.max())} is outside 0..{self.dims.speech_token_size - 1}")
        x = self.input_embedding(ids.to(self.device).clamp(min=0))[None]
        return self.encoder_proj(self.encoder(x, final, past, blocks))

    def advance(
        self,
        ids: torch.Tensor,
        start: int,
        final: bool,
        prompt_mel: torch.Tensor,
        speaker: torch.Tensor,
        encoder_past: EncoderPast,
        pasts: list[EstimatorPast] | None,
        blocks: Blocks | None,
    ) -> torch.Tensor:
        """ids (rows,) from position `start` on -> mel (2n, 80) of these positions, prompt frames included.
        The pasts must end at `start` and end at start + n afterwards."""
        return self.advance_many([Work(ids, start, final, prompt_mel, speaker, encoder_past, pasts, blocks)])[0]

    def advance_many(self, works: Sequence[Work]) -> list[torch.Tensor]:
        """`advance` for works of one `shape`, the estimator's calls shared. When it raises, nothing of any of them is done."""
        marks = [work.mark() for work in works]
        for work in works:
            if FRAMES_PER_ID * (work.start + work.count) > MAX_FRAMES:
                raise BadInput("This is more than 300 seconds in one piece. Split it.", "这一段超过 300 秒，请拆成几段。")
        try:
            return list(self._advanced(works))
        except Exception:
            for work, mark in zip(works, marks, strict=True):
                work.back_to(mark)
            raise

    def _advanced(self, works: Sequence[Work]) -> torch.Tensor:
        one, frames = works[0], FRAMES_PER_ID * works[0].count
        mu = torch.cat([self.encode(work.ids, work.final, work.encoder_past, work.blocks) for work in works])
        cond = mu.new_zeros(len(works), frames, MEL_BANDS)
        for row, work in zip(cond, works, strict=True):
            known = work.prompt_mel[FRAMES_PER_ID * work.start :][:frames]
            row[: len(known)] = known
        mask = one.blocks.mask(one.start, one.count, FRAMES_PER_ID, mu) if one.blocks else None
        speakers = torch.cat([work.speaker for work in works])
        pasts = None if one.pasts is None else [work.pasts for work in works]
        return self.decoder.solve_many([FRAMES_PER_ID * work.start for work in works], mu, speakers, cond, pasts, mask)

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
        """All at once, nothing kept. ids (n,), prompt_ids (p,), prompt_mel (t, 80), embedding (192,) -> mel (frames, 80) after
        the prompt's. blocks None: full attention; not final: the last 3 ids are look-ahead only."""
        joined = torch.cat([prompt_ids.reshape(-1).long(), ids.reshape(-1).long()])
        prompt_mel = prompt_mel.reshape(-1, MEL_BANDS).to(self.encoder_proj.weight)
        past = EncoderPast(self.dims, self.dtype, self.device)
        mel = self.advance(joined, 0, final, prompt_mel, self.speaker(embedding), past, None, blocks)
        return mel[len(prompt_mel) :]
