"""Item D: do the two listening networks hear a clip as they should?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....messages import message
from ..frontend.prompt_encoder import PromptFeatures
from .result import Result, failed, passed, skipped
from .speech import Clip, cosine

if TYPE_CHECKING:
    from ..model import Model

LEAST_DIVERSE = 0.1  # different ids, as a share of all of a clip


def listening(model: Model, clips: Sequence[Clip]) -> Result:
    """clips: of two different voices at least."""
    if not model.prompt_encoder.can_hear or len(clips) < 2:
        sentences = message("doctor.listening_skipped")
        return skipped("D", "listening", sentences)
    rate = model.prompt_encoder.config.ids_per_s
    voices = [model.prompt_encoder.voice(clip.samples, clip.rate) for clip in clips]
    counts = {
        clip.name: {
            "ids": len(voice.speech_ids),
            "expected": round(rate * clip.seconds, 1),
            "different": len(set(voice.speech_ids)),
        }
        for clip, voice in zip(clips, voices, strict=True)
    }
    first, second = _halves(model, clips[0])
    same, other = cosine(first.vector, second.vector), cosine(first.vector, voices[1].vector)
    figures = {
        "clips": counts,
        "cosine_same": round(same, 3),
        "cosine_other": round(other, 3),
    }
    off = [name for name, c in counts.items() if abs(c["ids"] - c["expected"]) > 1 + rate / 25]
    flat = [name for name, c in counts.items() if c["different"] < LEAST_DIVERSE * c["ids"]]
    if off or flat:
        finding = (
            message("doctor.listening_rate", rate=rate) if off else message("doctor.listening_flat")
        )
        sentences = message("doctor.listening_bad", heard=finding)
        return failed("D", "listening", sentences, figures=figures)
    if same <= other:
        sentences = message("doctor.listening_speakers_alike", cosine=same, other=other)
        return failed("D", "listening", sentences, figures=figures)
    sentences = message("doctor.listening_good", rate=rate, cosine=same, other=other)
    return passed("D", "listening", sentences, figures)


def _halves(model: Model, clip: Clip) -> tuple[PromptFeatures, PromptFeatures]:
    middle = len(clip.samples) // 2
    parts = clip.samples[:middle], clip.samples[middle:]
    return tuple(model.prompt_encoder.voice(part, clip.rate) for part in parts)
