"""The published code's way from ids to wave, with its seams, for golden data and comparisons only:
growing hops, the whole history again on every call, full attention in the last one, a fade whose
halves sum to 1.08, a vocoder that starts anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from webui.engine.cosyvoice.flow import Blocks, FlowModel
from webui.engine.cosyvoice.flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS
from webui.engine.cosyvoice.vocoder import Vocoder
from webui.engine.cosyvoice.vocoder.source import noise_at
from webui.types import part_seed

FIRST_HOP_IDS, MAX_HOP_IDS, HOP_GROWTH = 25, 100, 2
HELD_FRAMES = 8


@dataclass(frozen=True)
class Call:
    """One call of flow and vocoder: on the first `n_ids` ids, playing from id `offset` on."""

    n_ids: int
    offset: int
    final: bool


def schedule(n_ids: int, prompt_ids: int) -> list[Call]:
    """The calls of one request when all its ids are there at once."""
    calls, offset, hop = [], 0, FIRST_HOP_IDS
    while True:
        need = hop + (-prompt_ids % hop if offset == 0 else 0)
        if n_ids - offset < need + LOOKAHEAD_IDS:
            return [*calls, Call(n_ids, offset, True)]
        calls.append(Call(offset + need + LOOKAHEAD_IDS, offset, False))
        offset += need
        hop = min(MAX_HOP_IDS, HOP_GROWTH * hop)


class SeamVocoder:
    """One stream as the published code makes it: each call has the last `n_held` frames and their
    excitation in front, and is faded in.
    """

    def __init__(self, vocoder: Vocoder, seed: int | None = None, n_held: int = HELD_FRAMES):
        self.vocoder, self.seed = vocoder, seed
        self.frames, self.samples = n_held, n_held * vocoder.dims.frame_samples
        self._seam: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self.calls = 0

    def joined(self, mel: torch.Tensor) -> torch.Tensor:
        """What the vocoder is given for the new frames mel (1, 80, n)."""
        return mel if self._seam is None else torch.cat([self._seam[0], mel], 2)

    @torch.inference_mode()
    def push(self, joined: torch.Tensor, final: bool) -> torch.Tensor:
        """joined (1, 80, n) from `joined` -> samples (m,)"""
        vocoder, samples = self.vocoder, self.samples
        seed = None if self.seed is None else part_seed(self.seed, self.calls)
        noise = (
            None
            if seed is None
            else noise_at(seed, 0, joined.shape[2] * vocoder.dims.frame_samples)
        )
        self.calls += 1
        source = vocoder.m_source(vocoder.f0(joined), noise, vocoder.m_source.start(seed))
        if self._seam is not None:
            source[:, :, :samples] = self._seam[1]
        wave = vocoder.decode(joined, source)
        if self._seam is not None:
            fade = torch.from_numpy(np.hamming(2 * samples)).to(wave)
            wave[:samples] = wave[:samples] * fade[:samples] + self._seam[2] * fade[samples:]
        if final:
            self._seam = None
            return wave
        self._seam = joined[:, :, -self.frames :], source[:, :, -samples:], wave[-samples:].clone()
        return wave[:-samples]


def stretch(mel: torch.Tensor, speed: float) -> torch.Tensor:
    """mel (1, 80, n) -> (1, 80, int(n / speed)), linear with half-pixel centres; the pitch
    stays.
    """
    return (
        mel if speed == 1.0 else F.interpolate(mel, size=int(mel.shape[2] / speed), mode="linear")
    )


class Token2Wav:
    """Flow and vocoder for one voice. ids and prompt_ids (n,), prompt_mel (t, 80), embedding
    (192,).
    """

    def __init__(
        self,
        flow: FlowModel,
        vocoder: Vocoder,
        prompt_ids: torch.Tensor,
        prompt_mel: torch.Tensor,
        embedding: torch.Tensor,
    ):
        self.flow, self.vocoder = flow, vocoder
        self.voice = prompt_ids, prompt_mel, embedding

    def mel(self, ids: torch.Tensor, call: Call) -> torch.Tensor:
        """(1, 80, n): the frames that this call adds"""
        blocks = None if call.final else Blocks(self.flow.dims.chunk_size)
        mel = self.flow.whole(ids[: call.n_ids], *self.voice, blocks, call.final)
        return mel[FRAMES_PER_ID * call.offset :].mT[None]

    def stream(
        self, ids: torch.Tensor, seed: int | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Per call: the mel given to the vocoder (1, 80, n) and the samples emitted (m,)."""
        vocoder = SeamVocoder(self.vocoder, seed)
        for call in schedule(len(ids), len(self.voice[0])):
            joined = vocoder.joined(self.mel(ids, call))
            yield joined, vocoder.push(joined, call.final)

    def offline(
        self, ids: torch.Tensor, speed: float = 1.0, seed: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """In one call: mel given to the vocoder, samples."""
        mel = stretch(self.mel(ids, Call(len(ids), 0, True)), speed)
        return mel, SeamVocoder(self.vocoder, seed).push(mel, True)
