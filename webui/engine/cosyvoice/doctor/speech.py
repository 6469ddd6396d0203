"""What the items share: a clip and its voice, ids drawn from a request, mel and sound made of ids,
and how far two mels are apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ....types import SpeechRequest
from ..frontend.audio_features import resample
from ..frontend.prompt_cache import CachedPrompt
from ..frontend.prompt_encoder import FRAMES_PER_ID, PromptFeatures
from ..scheduler.chunk_schedule import latency_profile

if TYPE_CHECKING:
    from ..flow.interface import FlowVoice
    from ..model import Model

RANGE = 6.0  # of natural-log mel below a clip's loudest: what lies deeper is the recording's noise


@dataclass(frozen=True)
class Clip:
    """samples: float32 mono (n,) at `rate` Hz. transcript: exactly its words. language: BCP 47."""

    name: str
    samples: np.ndarray
    rate: int
    transcript: str
    language: str

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def request(
    text: str, language: str = "auto", mode: str = "cross_lingual", **more
) -> SpeechRequest:
    """seed 1 unless told otherwise: every run of the doctor speaks the same."""
    more = {"seed": 1, "segments": (text,), **more}
    return SpeechRequest("doctor", text, "doctor", mode, language=language, **more)


def cut(prompt: PromptFeatures, count: int) -> PromptFeatures:
    """The first `count` ids of a voice, with as much of its mel, and without its words."""
    frames = round(prompt.mel.shape[1] * count / max(1, len(prompt.speech_ids)))
    frames = frames if prompt.mel.shape[1] != FRAMES_PER_ID * len(prompt.speech_ids) else 2 * count
    return replace(
        prompt,
        text_ids=(),
        speech_ids=prompt.speech_ids[:count],
        mel=prompt.mel[:, :frames].contiguous(),
    )


def draw(
    model: Model, voice: CachedPrompt, speech_request: SpeechRequest, most: int
) -> tuple[list, bool]:
    """The ids of a request of one segment, as the engine draws them, and whether the model ended by
    itself. most: ids.
    """
    source = model.prompt_builder(voice, speech_request).build_lm_tokens()[0]
    while not source.is_over and len(source.ids) < most:
        source.prefill_or_step()
    ends = source.is_over
    source.free()
    return source.ids[:most], ends


def grown_flow_voice(model: Model, prompt: PromptFeatures) -> FlowVoice:
    voice = model.voice(prompt, model.model_spec.first_hops[0])
    while not voice.is_ready:
        voice.grow()
    return voice


def mel_of(model: Model, voice: FlowVoice, ids: Sequence[int], in_hops: bool = False) -> Tensor:
    """ids -> mel (frames, 80) on the CPU. in_hops: as a stream makes it, piece by piece, with what
    is kept between them.
    """
    flow, mels = voice.begin(seed=1), []
    try:
        hops = model.hops(model.model_spec.first_hops[0], latency_profile("balanced"))
        hop = 0
        while in_hops and hops.needed(hop) < len(ids):
            ids_prefix = ids[: hops.needed(hop)]
            mels += model.flow_batch([(flow, ids_prefix, False)])
            hop += 1
        mels += model.flow_batch([(flow, ids, True)])
        return torch.cat(mels).float().cpu()
    finally:
        flow.close()


def sound_of(model: Model, mel: Tensor) -> np.ndarray:
    """mel (frames, 80) -> samples at the model's rate."""
    wave = model.new_wave_stream(1)
    return model.vocode_batch([(wave, mel.to(model.device_config.device), True)])[0].cpu().numpy()


def mel_of_sound(model: Model, samples: np.ndarray, rate: int) -> Tensor:
    """The mel (frames, 80) of samples, as this generation's flow was trained on it."""
    how = model.prompt_encoder.config
    return how.mel(resample(torch.from_numpy(np.ascontiguousarray(samples)), rate, how.mel_hz))


def distance(own: Tensor, other: Tensor) -> float:
    """Mean difference of two natural-log mels (frames, 80), where the first has sound: 0.1 is 0.9
    dB. Infinite for what is not finite.
    """
    count = min(len(own), len(other))
    own, other = own[:count].float(), other[:count].float()
    if not count or not torch.isfinite(other).all():
        return float("inf")
    floor = own.max() - RANGE
    return float((own - other.clamp(min=floor)).abs()[own > floor].mean())


def match(own: Sequence[int], other: Sequence[int], shift: int = 1) -> float:
    """Share of ids that are the same at the same place, the best of shifts by up to `shift`."""
    best = 0.0
    for by in range(-shift, shift + 1):
        a, b = (own[by:], other) if by >= 0 else (own, other[-by:])
        count = min(len(a), len(b))
        same = sum(x == y for x, y in zip(a[:count], b[:count], strict=True))
        best = max(best, same / max(1, len(own)))
    return best


def cosine(own: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(own.reshape(-1), other.reshape(-1), 0))
