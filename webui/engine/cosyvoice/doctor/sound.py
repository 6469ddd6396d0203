"""Item F: the chain from speech ids to sound, each link measured against the clip itself or against
its own other way to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..frontend.prompt_encoder import PromptFeatures
from .result import UNTRAINED, Result, failed, passed, skipped
from .speech import Clip, cut, distance, grown, match, mel_of, mel_of_sound, sound_of

if TYPE_CHECKING:
    from ..model import Model

MOST_VOCODED = 0.9  # natural-log mel between a clip and its vocoded mel
LEAST_MATCH, CHANCE = 0.25, 0.02  # of ids that come back from their own sound
MOST_CACHED = 0.05  # natural-log mel between a stream and one piece


def vocoder(model: Model, clip: Clip, prompt: PromptFeatures) -> Result:
    """The clip's own mel through the vocoder alone: a wrong phase or excitation smears it."""
    far = distance(prompt.mel[0], _vocoded(model, prompt))
    figures = {"mel_distance": round(far, 3), "clip": clip.name}
    if not far < MOST_VOCODED:
        said = (
            (
                f"The vocoder does not give the clip's sound back (log-mel distance {far:.2f}, at"
                f" most {MOST_VOCODED}): hift.pt is damaged or untrained."
            ),
            (
                f"声码器还原不出这段声音（对数梅尔距离 {far:.2f}，上限 {MOST_VOCODED}）：hift.pt"
                " 已损坏或未经训练。"
            ),
        )
        way_out = (
            "Fetch hift.pt again with scripts/fetch_models.py.",
            "请用 scripts/fetch_models.py 重新下载 hift.pt。",
        )
        return failed("F", "vocoder", said, way_out, figures)
    said = (
        f"The vocoder gives the clip's sound back (log-mel distance {far:.2f}).",
        f"声码器能还原这段声音（对数梅尔距离 {far:.2f}）。",
    )
    return passed("F", "vocoder", said, figures)


def _vocoded(model: Model, prompt: PromptFeatures):
    return mel_of_sound(model, sound_of(model, prompt.mel[0]), model.spec.sample_rate)


def flow(model: Model, clip: Clip, prompt: PromptFeatures) -> Result:
    """The second half of the clip's ids behind the first half as the voice: flow, vocoder, and
    heard again.
    """
    if not model.prompt_encoder.can_hear:
        said = "Nothing can hear the sound again.", "没有网络可以重听声音。"
        return skipped("F", "flow", said)
    half = len(prompt.speech_ids) // 2
    ids, own = prompt.speech_ids[half:], cut(prompt, half)
    mel = mel_of(model, grown(model, own), ids)
    again = model.prompt_encoder.speech_ids(sound_of(model, mel), model.spec.sample_rate)
    far, share = distance(prompt.mel[0, own.mel.shape[1] :], mel), match(ids, again)
    figures = {"mel_distance": round(far, 3), "match": round(share, 3), "ids": len(ids)}
    if not share > LEAST_MATCH:
        why = UNTRAINED if share < CHANCE else ("flow.pt is damaged", "flow.pt 已损坏")
        said = (
            f"{share:.0%} of the ids come back from their own sound: {why[0]}.",
            f"只有 {share:.0%} 的编号能从自己的声音中听回来：{why[1]}。",
        )
        return failed("F", "flow", said, figures=figures)
    said = (
        f"{share:.0%} of the ids come back from their own sound.",
        f"{share:.0%} 的编号能从自己的声音中听回来。",
    )
    return passed("F", "flow", said, figures)


def cache(model: Model, prompt: PromptFeatures) -> Result:
    """A stream's mel, made hop by hop with what is kept, beside the same ids in one piece."""
    if model.model_spec.engine == "cosyvoice1":  # its hops are cross-faded: they are other mels
        said = "This generation keeps nothing between hops.", "这一代模型不在各段之间保留缓存。"
        return skipped("F", "cache", said)
    half = len(prompt.speech_ids) // 2
    voice, ids = grown(model, cut(prompt, half)), prompt.speech_ids[half:]
    far = distance(mel_of(model, voice, ids), mel_of(model, voice, ids, in_hops=True))
    figures = {"mel_distance": round(far, 4), "ids": len(ids)}
    if not far < MOST_CACHED:
        said = (
            f"A stream does not sound as one piece (log-mel distance {far:.2f}).",
            f"流式合成与整段合成不一致（对数梅尔距离 {far:.2f}）。",
        )
        way_out = (
            "Report this with the doctor's JSON file: it is a fault of the studio.",
            "这是工作室的问题，请附上体检 JSON 文件反馈。",
        )
        return failed("F", "cache", said, way_out, figures)
    said = (
        f"A stream sounds as one piece (log-mel distance {far:.3f}).",
        f"流式合成与整段合成一致（对数梅尔距离 {far:.3f}）。",
    )
    return passed("F", "cache", said, figures)
