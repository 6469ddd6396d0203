"""Item G of a model that is told of its speaker: which end of a description keeps it from being
read aloud? One sentence is spoken alone and behind a description several times as long, once with
each end that this generation has been fed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ....messages import message
from ..frontend.prompt_cache import CachedPrompt
from ..frontend.prompt_encoder import PromptFeatures
from ..llm.decode import MAX_IDS_PER_TEXT_ID, MIN_IDS_PER_TEXT_ID
from ..llm.interface import SamplingRequest
from ..llm.token_sources import LMTokens
from .result import WARNED, Result, failed, passed
from .speaking import Recognise
from .speech import grown_flow_voice, mel_of, request, sound_of

if TYPE_CHECKING:
    from ..model import Model

LANGUAGE, TEXT = "en", "Hello, it is good to see you again."
DESCRIPTION = (
    "A calm and friendly woman of about forty with a clear voice, a steady speaking rate, a medium"
    " pitch and an expressive tone, who is telling a long story to the children of her village on a"
    " warm evening in summer."
)
READ, NOT_READ = 2.5, 1.7  # speech ids, in units of those of the sentence alone
MOST_ERROR = 1.5  # words that were not asked for, per word of the sentence


def applies(model: Model) -> bool:
    return len(model.model_spec.ends_of_prompt) > 1 and "instruct" in model.facts.modes


def description(model: Model, prompt: PromptFeatures, recognise: Recognise | None = None) -> Result:
    """The figure `end_of_prompt` is what the engine shall use. recognise: where words can be told
    they decide, else lengths do.
    """
    voice = CachedPrompt(model, next(iter(model.presets.values()), prompt))
    alone, ends_alone, _ = _speak(model, voice, "", None)
    figures: dict = {"alone": alone, "ends_alone": ends_alone, "with": {}}
    for end in model.model_spec.ends_of_prompt:
        ended = replace(model, tokenizer=model.tokenizer.ending(end))
        ids, _, error = _speak(ended, voice, DESCRIPTION, recognise)
        ratio = round(ids / max(1, alone), 2)
        is_read = _is_read(ratio if ends_alone else None, error)
        figures["with"][end] = {"ids": ids, "ratio": ratio, "error": error, "is_read": is_read}
    return _judge(figures)


def _judge(figures: dict) -> Result:
    """The usual end unless it is known to be read with its description, and another is known not to
    be.
    """
    is_read: Mapping[str, bool | None] = {end: f["is_read"] for end, f in figures["with"].items()}
    usual, *others = is_read
    better = next((end for end in others if is_read[end] is False), None)
    figures["end_of_prompt"] = usual
    if is_read[usual] is False:
        verdict = message("doctor.description_silent", usual=usual)
        return passed("G", "description", verdict, figures)
    if is_read[usual] and better is not None:
        figures["end_of_prompt"] = better
        verdict = message("doctor.description_better", usual=usual, better=better)
        return passed("G", "description", verdict, figures)
    if is_read[usual] and all(is_read[end] for end in others):
        verdict = message("doctor.description_read_aloud")
        way_out = message("doctor.description_avoid")
        return failed("G", "description", verdict, way_out, figures)
    verdict = message("doctor.description_unclear", usual=usual)
    way_out = message("doctor.description_listen")
    return failed("G", "description", verdict, way_out, figures, WARNED)


def _is_read(ratio: float | None, error: float | None) -> bool | None:
    """None: cannot be told."""
    if error is not None:
        return error > MOST_ERROR
    if ratio is None or NOT_READ < ratio < READ:
        return None
    return ratio >= READ


def _speak(
    model: Model, voice: CachedPrompt, figures: str, recognise: Recognise | None
) -> tuple[int, bool, float | None]:
    """How many speech ids the sentence has, whether it ends by itself, and its word error.

    There is room for the description: the usual most of 20 ids for each text id would end what
    reads it.
    """
    speech_request = request(
        TEXT, LANGUAGE, "instruct" if figures else "cross_lingual", instruction=figures
    )
    prompt_builder = model.prompt_builder(voice, speech_request)
    text = prompt_builder.text(TEXT)
    most = MAX_IDS_PER_TEXT_ID * (len(text) + len(prompt_builder.prompt_text))
    sampling = SamplingRequest(
        speech_request.seed, MIN_IDS_PER_TEXT_ID * len(text), most, model.spec.rule
    )
    source = LMTokens(
        model.lm,
        prompt_builder.prefix,
        text,
        prompt_builder.prompt_speech,
        sampling,
        prompt_builder.token_filter(),
    )
    while not source.is_over:
        source.prefill_or_step()
    error = None
    if recognise is not None and source.ids:
        wave = sound_of(model, mel_of(model, grown_flow_voice(model, voice.prompt), source.ids))
        error = recognise(wave, model.spec.sample_rate, LANGUAGE, TEXT)
    return len(source.ids), len(source.ids) < most, error
