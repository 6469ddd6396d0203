"""The published code's way from ids to wave, with its seams, for golden data and comparisons only:
fades whose halves sum to 1.08 for mel and wave, a vocoder that starts anew each time, and the
frames of a prompt that was read at another rate than it is treated at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from webui.engine.cosyvoice.dims_v1 import HOP_IDS, OVERLAP_FRAMES, OVERLAP_IDS
from webui.engine.cosyvoice.flow.hop_flow import HopCache, HopFlow, Work
from webui.engine.cosyvoice.flow.hop_stream import HopVoice
from webui.engine.cosyvoice.vocoder.hift_v1 import VocoderV1

from .v2 import SeamVocoder, stretch

HELD_FRAMES = 20
# to which the published front end brings a prompt, whose mel it then takes as one of 22050 Hz
SLIPPED_HZ = 24000

Noise = Callable[[int, int], torch.Tensor]  # (call, frames) -> (1, frames, 80)


@dataclass(frozen=True)
class Call:
    """One call of flow and vocoder: on the ids from `offset` on, `n_ids` of them."""

    n_ids: int
    offset: int
    final: bool


def schedule(n_ids: int) -> list[Call]:
    """The calls of one request when all its ids are there at once."""
    calls, offset = [], 0
    while n_ids - offset >= HOP_IDS + OVERLAP_IDS:
        calls.append(Call(HOP_IDS + OVERLAP_IDS, offset, False))
        offset += HOP_IDS
    return [*calls, Call(n_ids - offset, offset, True)]


class Token2Wav:
    """Flow and vocoder for one voice. ids and prompt_ids (n,), prompt_mel (t, 80), embedding
    (192,). noise: the flow's draw of each call.
    """

    def __init__(
        self,
        flow: HopFlow,
        vocoder: VocoderV1,
        prompt_ids: torch.Tensor,
        prompt_mel: torch.Tensor,
        embedding: torch.Tensor,
        noise: Noise,
    ):
        self.flow, self.vocoder, self._noise = flow, vocoder, noise
        self.voice = HopVoice.of(flow, prompt_ids, prompt_mel, embedding)

    def hop(
        self, ids: torch.Tensor, number: int, cache: HopCache | None
    ) -> tuple[torch.Tensor, HopCache]:
        """ids (n,) of this call -> mel (frames, 80), what the next call begins with"""
        voice = self.voice
        work = Work(
            ids.reshape(-1).long(),
            voice.prompt_ids,
            voice.prompt_mel,
            voice.speaker,
            torch.empty(0),
            cache,
        )
        work.noise = self._noise(number, work.frames)
        return self.flow.hops([work])[0]

    @torch.inference_mode()
    def stream(
        self, ids: torch.Tensor, seed: int | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Per call: the mel given to the vocoder (1, 80, n) and the samples emitted (m,)."""
        vocoder, cache, tail = SeamVocoder(self.vocoder, seed, HELD_FRAMES), None, None
        fade = torch.from_numpy(np.hamming(2 * OVERLAP_FRAMES))[:, None]
        for number, call in enumerate(schedule(len(ids))):
            mel, cache = self.hop(ids[call.offset : call.offset + call.n_ids], number, cache)
            if tail is not None:
                mel[:OVERLAP_FRAMES] = (
                    mel[:OVERLAP_FRAMES] * fade[:OVERLAP_FRAMES] + tail * fade[OVERLAP_FRAMES:]
                )
            if not call.final:
                mel, tail = mel[:-OVERLAP_FRAMES], mel[-OVERLAP_FRAMES:].clone()
            joined = vocoder.joined(mel.mT[None])
            yield joined, vocoder.push(joined, call.final)

    def offline(
        self, ids: torch.Tensor, speed: float = 1.0, seed: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """In one call: mel given to the vocoder, samples."""
        mel = stretch(self.hop(ids, 0, None)[0].mT[None], speed)
        return mel, SeamVocoder(self.vocoder, seed, HELD_FRAMES).push(mel, True)
