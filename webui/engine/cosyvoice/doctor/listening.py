"""Item D: do the two listening networks hear a clip as they should?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..frontend.prompt_encoder import PromptFeatures
from .result import Result, failed, passed, skipped
from .speech import Clip, cosine

if TYPE_CHECKING:
    from ..model import Model

LEAST_DIVERSE = 0.1  # different ids, as a share of all of a clip


def listening(model: Model, clips: Sequence[Clip]) -> Result:
    """clips: of two different voices at least."""
    if not model.prompt_encoder.can_hear or len(clips) < 2:
        said = (
            "Nothing was heard: this model has ready speakers only.",
            "没有测试听力：这个模型只有预训练音色。",
        )
        return skipped("D", "listening", said)
    rate = model.prompt_encoder.hearing.ids_per_s
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
        en = f"not {rate} ids a second" if off else "hardly any difference between sounds"
        zh = f"不是每秒 {rate} 个编号" if off else "几乎听不出声音的差别"
        said = f"The speech tokenizer hears {en}.", f"语音分词网络听到的{zh}。"
        return failed("D", "listening", said, figures=figures)
    if same <= other:
        said = (
            (
                f"The speaker network takes two halves of one voice (cosine {same:.2f}) for less"
                f" alike than two voices ({other:.2f})."
            ),
            f"声纹网络认为同一声音的两半（余弦 {same:.2f}）不如两个声音相似（{other:.2f}）。",
        )
        return failed("D", "listening", said, figures=figures)
    said = (
        (
            f"Clips give {rate} ids a second; one voice is more like itself ({same:.2f}) than like"
            f" another ({other:.2f})."
        ),
        f"每秒 {rate} 个编号；同一声音更像自己（{same:.2f}），而不是别人（{other:.2f}）。",
    )
    return passed("D", "listening", said, figures)


def _halves(model: Model, clip: Clip) -> tuple[PromptFeatures, PromptFeatures]:
    middle = len(clip.samples) // 2
    parts = clip.samples[:middle], clip.samples[middle:]
    return tuple(model.prompt_encoder.voice(part, clip.rate) for part in parts)
