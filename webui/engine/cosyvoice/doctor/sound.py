"""Item F: the chain from speech ids to sound, each link measured against the clip itself or against
its own other way to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....messages import message
from ..frontend.prompt_encoder import PromptFeatures
from .result import UNTRAINED, Result, failed, passed, skipped
from .speech import Clip, cut, distance, grown_flow_voice, match, mel_of, mel_of_sound, sound_of

if TYPE_CHECKING:
    from ..model import Model

MOST_VOCODED = 0.9  # natural-log mel between a clip and its vocoded mel
LEAST_MATCH, CHANCE = 0.25, 0.02  # of ids that come back from their own sound
MOST_CACHED = 0.05  # natural-log mel between a stream and one piece


def vocoder(model: Model, clip: Clip, prompt: PromptFeatures) -> Result:
    """The clip's own mel through the vocoder alone: a wrong phase or excitation smears it."""
    far = distance(prompt.mel[0], _vocode(model, prompt))
    figures = {"mel_distance": round(far, 3), "clip": clip.name}
    if not far < MOST_VOCODED:
        sentences = message("doctor.vocoder_bad", distance=far, most_vocoded=MOST_VOCODED)
        way_out = message("doctor.vocoder_fetch")
        return failed("F", "vocoder", sentences, way_out, figures)
    sentences = message("doctor.vocoder_good", distance=far)
    return passed("F", "vocoder", sentences, figures)


def _vocode(model: Model, prompt: PromptFeatures):
    return mel_of_sound(model, sound_of(model, prompt.mel[0]), model.spec.sample_rate)


def flow(model: Model, clip: Clip, prompt: PromptFeatures) -> Result:
    """The second half of the clip's ids behind the first half as the voice: flow, vocoder, and
    heard again.
    """
    if not model.prompt_encoder.can_hear:
        sentences = message("doctor.ids_not_heard")
        return skipped("F", "flow", sentences)
    half = len(prompt.speech_ids) // 2
    ids, own = prompt.speech_ids[half:], cut(prompt, half)
    mel = mel_of(model, grown_flow_voice(model, own), ids)
    recovered_ids = model.prompt_encoder.speech_ids(sound_of(model, mel), model.spec.sample_rate)
    far, share = distance(prompt.mel[0, own.mel.shape[1] :], mel), match(ids, recovered_ids)
    figures = {"mel_distance": round(far, 3), "match": round(share, 3), "ids": len(ids)}
    if not share > LEAST_MATCH:
        why = UNTRAINED if share < CHANCE else message("doctor.flow_damaged")
        sentences = message("doctor.ids_lost", share=share, why=why)
        return failed("F", "flow", sentences, figures=figures)
    sentences = message("doctor.ids_good", share=share)
    return passed("F", "flow", sentences, figures)


def cache(model: Model, prompt: PromptFeatures) -> Result:
    """A stream's mel, made hop by hop with what is kept, beside the same ids in one piece."""
    if model.model_spec.engine == "cosyvoice1":  # its hops are cross-faded: they are other mels
        sentences = message("doctor.stream_no_cache")
        return skipped("F", "cache", sentences)
    half = len(prompt.speech_ids) // 2
    voice, ids = grown_flow_voice(model, cut(prompt, half)), prompt.speech_ids[half:]
    far = distance(mel_of(model, voice, ids), mel_of(model, voice, ids, in_hops=True))
    figures = {"mel_distance": round(far, 4), "ids": len(ids)}
    if not far < MOST_CACHED:
        sentences = message("doctor.stream_differs", distance=far)
        way_out = message("doctor.report_fault")
        return failed("F", "cache", sentences, way_out, figures)
    sentences = message("doctor.stream_good", distance=far)
    return passed("F", "cache", sentences, figures)
