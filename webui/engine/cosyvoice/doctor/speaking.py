"""Items G and H: what the model says of its own, measured by what was chosen, and kept for whoever
can listen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ....errors import KaikouError
from ....messages import message
from ..frontend.prompt_cache import CachedPrompt
from ..frontend.prompt_encoder import PromptFeatures
from .result import UNTRAINED, WARNED, Result, failed, passed, skipped
from .speech import cosine, draw, grown_flow_voice, match, mel_of, mel_of_sound, request, sound_of

if TYPE_CHECKING:
    from ..model import Model

TEXTS = (
    ("zh", "你好，很高兴见到你。"),
    ("zh", "今天天气很好，我们去公园走一走吧，湖边的花已经开了。"),
    ("zh",
        "从前有一座山，山脚下住着一位老人。他每天清早上山砍柴，傍晚才回家，村里的孩子都喜欢听他讲"
        "故事。"),
    ("en", "Hello, it is good to see you again."),
    ("en", "The weather is lovely today, so let us take a walk around the lake before dinner."),
    ("en",
        "Once there was an old man who lived at the foot of a mountain, and every evening the "
        "children of the village came to hear his stories."),
)  # fmt: skip
QUICK = (0, 3)  # of the texts: the short ones
LEAST, MOST = 3, 12  # speech ids at 25 a second for each text id
TOO_MANY = 15  # of them: then it is not waited for its end
LEAST_LIKENESS, LEAST_MATCH, CHANCE = 0.6, 0.25, 0.02
MOST_CLIPPED = 0.001  # of the samples
EDGE_S, MOST_EDGE = 0.3, 0.9  # of either end; correlation with the prompt's tail
FULL_SCALE = 0.985
MOST_ERROR = 0.3  # of the words


def speaking(
    model: Model,
    prompt: PromptFeatures,
    other: PromptFeatures,
    texts: Sequence[tuple[str, str]] = TEXTS,
) -> tuple[Result, list[np.ndarray]]:
    """Item G. other: another voice, which what is said must resemble less.

    Also returns the sound of each text.
    """
    voice, flow, text_figures, waves = (
        CachedPrompt(model, prompt),
        grown_flow_voice(model, prompt),
        [],
        [],
    )
    for language, text in texts:
        speech_request = request(text, language)
        n_text = len(model.prompt_builder(voice, speech_request).text(text))
        most = int(TOO_MANY * n_text * model.spec.ids_per_s / 25)
        ids, ends = draw(model, voice, speech_request, most)
        mel = mel_of(model, flow, ids) if ids else torch.zeros(0, 80)
        wave = sound_of(model, mel) if len(mel) else np.zeros(0, np.float32)
        waves.append(wave)
        text_figures.append(
            {"text": text, "ids": len(ids), "ends": ends}
            | {"ids_per_text_id": round(len(ids) / max(1, n_text), 2)}
            | _measure_wave(model, ids, wave, prompt, other)
        )
    return _judge(model, text_figures), waves


def _measure_wave(
    model: Model,
    ids: Sequence[int],
    wave: np.ndarray,
    prompt: PromptFeatures,
    other: PromptFeatures,
) -> dict:
    """Figures of one text's sound."""
    is_finite = bool(np.isfinite(wave).all())
    figures = {
        "finite": is_finite,
        "clipped": round(float((np.abs(wave) > FULL_SCALE).mean()), 5) if len(wave) else 0.0,
    }
    try:
        wave_prompt = model.prompt_encoder.voice(wave, model.spec.sample_rate)
    except KaikouError as error:  # too short, silent or not finite: nothing to hear
        return figures | {"match": 0.0, "cosine": 0.0, "cosine_other": 0.0, "fault": error.en}
    mel, tail = mel_of_sound(model, wave, model.spec.sample_rate), prompt.mel[0]
    count = int(EDGE_S * len(mel) * model.spec.sample_rate / len(wave))
    edges = {"start": mel[:count], "end": mel[-count:]}
    return figures | {
        "match": round(match(ids, wave_prompt.speech_ids), 3),
        "cosine": round(cosine(wave_prompt.vector, prompt.vector), 3),
        "cosine_other": round(cosine(wave_prompt.vector, other.vector), 3),
        **{f"{name}_like_tail": _alike(part, tail[-count:]) for name, part in edges.items()},
    }


def _alike(own: torch.Tensor, other: torch.Tensor) -> float:
    """Correlation of two mels of one shape; 0 where they have none."""
    if own.shape != other.shape or not own.numel():
        return 0.0
    value = float(torch.corrcoef(torch.stack((own.reshape(-1), other.reshape(-1))))[0, 1])
    return round(value, 3) if value == value else 0.0


def _judge(model: Model, text_figures: list[dict]) -> Result:
    scale = model.spec.ids_per_s / 25
    faults: list[tuple[str, str]] = []
    for figures in text_figures:
        if not figures["finite"] or figures["clipped"] > MOST_CLIPPED:
            faults.append(message("doctor.speaking_damaged"))
        if not figures["ends"]:
            faults.append(message("doctor.speaking_endless"))
        if not LEAST <= figures["ids_per_text_id"] / scale <= MOST:
            faults.append(message("doctor.speaking_length"))
        if figures["match"] < LEAST_MATCH:
            faults.append(message("doctor.speaking_not_chosen"))
        if figures["cosine"] < max(LEAST_LIKENESS, figures["cosine_other"]):
            faults.append(message("doctor.speaking_other_voice"))
        if max(figures.get("start_like_tail", 0), figures.get("end_like_tail", 0)) > MOST_EDGE:
            faults.append(message("doctor.speaking_prompt_heard"))
    figures = {"texts": text_figures}
    kinds = list(dict.fromkeys(faults))
    if not kinds:
        count = len(text_figures)
        return passed("G", "speaking", message("doctor.speaking_good", count=count), figures)
    if sum(figures["match"] for figures in text_figures) / len(text_figures) < CHANCE:
        text_figures = message("doctor.speaking_noise", untrained=UNTRAINED, faults=kinds)
        return failed("G", "speaking", text_figures, figures=figures)
    way_out = message("doctor.speaking_listen")
    return failed("G", "speaking", message("doctor.speaking_bad", faults=kinds), way_out, figures)


Recognise = Callable[
    [np.ndarray, int, str, str], float | None
]  # samples, Hz, language, text -> error, None for a language it does not know


def words(
    waves: Sequence[np.ndarray],
    rate: int,
    texts: Sequence[tuple[str, str]] = TEXTS,
    recognise: Recognise | None = None,
    files: Sequence[str] = (),
) -> Result:
    """Item H. recognise: word or character error of what is said; None where no recogniser is
    installed. files: where the sound is kept.
    """
    figures: dict = {"files": list(files)}
    if recognise is None:
        sentences = message("doctor.words_no_recogniser")
        return skipped("H", "words", sentences, figures)
    errors = [
        recognise(wave, rate, language, text)
        for wave, (language, text) in zip(waves, texts, strict=True)
    ]
    known_errors = [error for error in errors if error is not None]
    figures["errors"] = [error if error is None else round(error, 3) for error in errors]
    mean = sum(known_errors) / max(1, len(known_errors))
    if mean > MOST_ERROR:
        sentences = message("doctor.words_lost", share=mean)
        way_out = message("doctor.words_listen")
        return failed("H", "words", sentences, way_out, figures, WARNED)
    sentences = message("doctor.words_good", share=1 - mean)
    return passed("H", "words", sentences, figures)
