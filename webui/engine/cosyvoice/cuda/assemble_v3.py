"""The third generation's flow and vocoder as works over static buffers (`..cosyvoice.graphs`): what
of them is its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..flow.conformer import SLOT_CONV2
from ..flow.dims import FRAMES_PER_ID
from ..flow.dit_flow import DitFlow
from ..model_spec import Progress
from ..v3 import CosyVoice3
from ..vocoder import ContextWindow
from ..vocoder.causal_hift import F0_AHEAD, MEL_AHEAD
from ..vocoder.causal_stream import FADE_SAMPLES, risen
from ..vocoder.conv_tails import Tails
from ..vocoder.dims import FFT, FFT_HOP
from ..vocoder.fixed_noise import fixed_noise
from .assemble import CapturedModelMixin, Sizes, Works, captured
from .capture import CudaCapture
from .flow import StaticFlow
from .flow_encoder import LOOKS_BACK, Ids
from .flow_rows import GatheredTails, TailStore
from .vocoder import StaticVocoder
from .vocoder_work import VocoderWork


class LookaheadWork:
    """An id's mu depends on the 2 before it and the 3 behind it: two rows in each slot are all that
    it remembers.
    """

    by_unit = tables = ()

    def __init__(self, flow: DitFlow, slots: int, units: int):
        self.flow = flow
        self.tails = TailStore(
            [flow.dims.lookahead_channels], LOOKS_BACK, slots, 1, 1, flow.dtype, flow.device
        )
        self.by_slot = (self.tails.data,)

    def __call__(self, ids: Ids) -> Tensor:
        """-> mu (batch, 2n, 80)"""
        tails = GatheredTails(self.tails.split(self.tails.of(ids.slots), 0), ids.count)
        mu = self.flow.pre_lookahead_layer(self.flow.input_embedding(ids.ids) * ids.is_given, tails)
        self.tails.keep(ids.slots, [[tails.after[SLOT_CONV2]]])
        return mu.repeat_interleave(FRAMES_PER_ID, 1)


class CausalWork(VocoderWork):
    """Every window as if the utterance began there: what its first frames lack has died away before
    those that are given. That is more work than a past of every layer, by 30 frames a window, and
    no memory.
    """

    before = 8  # four layers look back on two frames each
    reach = ContextWindow(
        left=30, held=6, first_held=6
    )  # the excitation is heard for 28.3 frames; of the wave half a window needs a frame more ahead
    lengths = (*range(1, 38), 39, 43, 51, 67, 86, 136, 236)

    def noise(self, seed: int | None, start: int, count: int) -> Tensor | None:
        """The same in every utterance."""
        return None if seed is None else fixed_noise().at(start, count)

    def convolved(self, conv: nn.Conv1d, x: Tensor) -> Tensor:
        looks_ahead = conv.kernel_size[0] == F0_AHEAD + 1
        return conv(F.pad(x, (0, F0_AHEAD) if looks_ahead else (conv.kernel_size[0] - 1, 0)))

    def cycles(self, at: Tensor, moves: Tensor, is_start: Tensor) -> Tensor:
        """They stand still within a frame."""
        return at[:, 1:].repeat_interleave(self.each, 1)

    def shaped(self, mel: Tensor, source: Tensor) -> Tensor:
        vocoder = self.vocoder
        spectrum = torch.stft(
            source[:, 0].to(vocoder.window),
            FFT,
            FFT_HOP,
            window=vocoder.window,
            return_complex=True,
        )
        columns = torch.cat([spectrum.real, spectrum.imag], 1).to(mel.dtype)
        return vocoder.shaped(F.pad(mel, (0, MEL_AHEAD)), columns, Tails())

    def risen(self, samples: Tensor, start: int) -> Tensor:
        return risen(samples, start, FADE_SAMPLES)


@dataclass(frozen=True)
class CapturedCosyVoice3(CapturedModelMixin, CosyVoice3):
    """lm is the static one."""

    static_flow: StaticFlow
    static_vocoder: StaticVocoder


WORKS = Works(CapturedCosyVoice3, LookaheadWork, CausalWork)


def replaying(
    model: CosyVoice3,
    on_progress: Progress = lambda share, en, zh: None,
    sizes: Sizes | None = None,
    capture=CudaCapture,
) -> CapturedCosyVoice3:
    """As `captured`, of this generation."""
    return captured(model, on_progress, sizes, capture, WORKS)
