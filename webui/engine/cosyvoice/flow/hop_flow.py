"""The flow model: the ids of one hop, behind those of the prompt, to mel.

Weights only; every request's memory is in hop_stream.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ....errors import BadInput
from ..dims_v1 import OVERLAP_FRAMES, frames_of
from .dims import MAX_FRAMES, MEL_BANDS
from .hop_dims import HopDims
from .hop_encoder import Encoder, LengthRegulator
from .hop_unet import UNet
from .network import FlowNetwork


@dataclass(frozen=True)
class HopCache:
    """Noise and mu, (1, frames, 80), of the prompt and of the overlap that comes again: the next
    call begins with the same.
    """

    noise: torch.Tensor
    mu: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.noise.nbytes + self.mu.nbytes


@dataclass
class Work:
    """One call of one request. ids (n,) of this hop, prompt_ids (p,), prompt_mel (m, 80), speaker
    (1, 80), noise (1, m + frames, 80).
    """

    ids: torch.Tensor
    prompt_ids: torch.Tensor
    prompt_mel: torch.Tensor
    speaker: torch.Tensor
    noise: torch.Tensor
    cache: HopCache | None

    @property
    def frames(self) -> int:
        """Of the prompt and of the hop."""
        return len(self.prompt_mel) + frames_of(len(self.ids))


class HopFlow(FlowNetwork):
    def __init__(self, dims: HopDims):
        super().__init__(dims, dims.input_size, UNet(dims))
        self.encoder, self.length_regulator = Encoder(dims), LengthRegulator()
        self.encoder_proj = nn.Linear(dims.encoder_dim, MEL_BANDS)

    def encode(self, prompt_ids: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """(p,), (n,) -> (1, p + n, 80)"""
        return self.encoder_proj(self.encoder(self.embedded(torch.cat([prompt_ids, ids]))))

    def mu(self, prompt_ids: torch.Tensor, ids: torch.Tensor, prompt_frames: int) -> torch.Tensor:
        """(1, prompt_frames + the frames of ids, 80)"""
        h, p = self.encode(prompt_ids, ids), len(prompt_ids)
        return self.length_regulator(h[:, :p], h[:, p:], prompt_frames, frames_of(len(ids)))

    @torch.inference_mode()
    def hops(self, works: Sequence[Work]) -> list[tuple[torch.Tensor, HopCache]]:
        """Of works of equally many frames: the hop's mel (frames, 80), and what its next call
        begins with.
        """
        if works[0].frames > MAX_FRAMES:
            raise BadInput("bad_input.over_170_s")
        inputs = [self.hop_inputs(work) for work in works]
        cond = inputs[0].mu.new_zeros(len(works), works[0].frames, MEL_BANDS)
        for row, work in zip(cond, works, strict=True):
            row[: len(work.prompt_mel)] = work.prompt_mel
        x, mu = (
            torch.cat([getattr(hop_input, name) for hop_input in inputs])
            for name in ("noise", "mu")
        )
        mels = self.decoder.guided(x, mu, torch.cat([work.speaker for work in works]), cond)
        return [
            (mel[len(work.prompt_mel) :], ends(hop_input, len(work.prompt_mel)))
            for mel, work, hop_input in zip(mels, works, inputs, strict=True)
        ]

    def hop_inputs(self, work: Work) -> HopCache:
        """Noise and mu of the whole call, what is kept of the one before in its place."""
        mu = self.mu(work.prompt_ids, work.ids, len(work.prompt_mel))
        noise = work.noise.to(device=mu.device, dtype=torch.promote_types(mu.dtype, torch.float32))
        if work.cache is None:
            return HopCache(noise, mu)
        count = work.cache.mu.shape[1]
        return HopCache(
            torch.cat([work.cache.noise, noise[:, count:]], 1),
            torch.cat([work.cache.mu, mu[:, count:]], 1),
        )


def ends(inputs: HopCache, prompt_frames: int) -> HopCache:
    def prompt_and_overlap(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :prompt_frames], x[:, -OVERLAP_FRAMES:]], 1)

    return HopCache(prompt_and_overlap(inputs.noise), prompt_and_overlap(inputs.mu))
