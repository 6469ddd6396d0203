"""The published code's way, with its defects, for golden data and comparisons only: text that
speaks before it is read, a start id masked in place of the end id, prompt speech that is dropped;
full attention in the last call, the vocoder over everything again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from webui.engine.cosyvoice.checkpoint_v3 import START
from webui.engine.cosyvoice.llm.decode import Sample
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.interface import KVCache, LanguageModel
from webui.engine.cosyvoice.llm.streaming_input import TextStream
from webui.engine.cosyvoice.vocoder.causal_hift import CausalVocoder
from webui.engine.cosyvoice.vocoder.causal_stream import NoiseAt, WaveStream

from . import v2

HELD_FRAMES = 8  # here 4: what the wave needs ahead of it


def published(dims: LmDims) -> LmDims:
    """Sizes under which the length rule is that of the published code: below the minimum the start
    id alone is masked, and any mark ends.
    """
    return replace(dims, end_at=START)


class PublishedStream(TextStream):
    def __init__(
        self,
        lm: LanguageModel,
        cache: KVCache,
        prompt_text: Sequence[int],
        prompt_speech: Sequence[int],
        sample: Sample,
        head: Sequence[int],
    ):
        super().__init__(lm, cache, prompt_text, prompt_speech, sample, head)
        self._opening = 0  # never alone: the head is there already, so nobody waits for text

    def _left_over(self) -> list[Tensor]:
        return []

    def _choose(self, scores: Tensor, never: tuple[int, ...]) -> int:
        """Raises ValueError for an id that means nothing here."""
        dims = self._lm.dims
        if dims.end in never:
            scores[dims.speech_codes + START] = -torch.inf
        chosen = self._sample(scores, self.out)
        if chosen in never:
            raise ValueError(f"{chosen} cannot be drawn here")
        return chosen


class Token2Wav(v2.Token2Wav):
    """Flow and vocoder for one voice. noise: None for none."""

    vocoder: CausalVocoder

    def stream(self, ids: Tensor, noise: NoiseAt | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Per call: the mel given to the vocoder (1, 80, n), which is all so far, and the samples
        emitted (m,).
        """
        mel, emitted = torch.zeros(1, 80, 0), 0
        for call in v2.schedule(len(ids), len(self.voice[0])):
            mel = torch.cat([mel.to(self.flow.device), self.mel(ids, call)], 2)
            wave = vocode(self.vocoder, mel, call.final, noise)[emitted:]
            emitted += len(wave)
            yield mel, wave

    def offline(
        self, ids: Tensor, speed: float = 1.0, noise: NoiseAt | None = None
    ) -> tuple[Tensor, Tensor]:
        """In one call: mel given to the vocoder, samples."""
        mel = v2.stretch(self.mel(ids, v2.Call(len(ids), 0, True)), speed)
        return mel, vocode(self.vocoder, mel, True, noise)


def vocode(
    vocoder: CausalVocoder, mel: Tensor, final: bool, noise: NoiseAt | None = None
) -> Tensor:
    """mel (1, 80, n) -> (480 * n,), not final (480 * (n - 8),)"""
    wave = WaveStream(vocoder, noise).push(mel[0].mT, final)
    return (
        wave if final else wave[: vocoder.dims.frame_samples * max(0, mel.shape[2] - HELD_FRAMES)]
    )
