"""Item E: does the language model expect the clip's own speech ids under the clip's own words?

Nothing is drawn: the ids are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ....messages import message
from ..frontend.prompt_cache import CachedPrompt
from ..frontend.prompt_encoder import PromptFeatures
from .result import UNTRAINED, Result, failed, passed, skipped
from .speech import Clip, request

if TYPE_CHECKING:
    from ..model import Model

MOST_IDS = 150  # of a clip: six seconds, half of that in the first generation
GUESSING, SURE, FAR_BELOW = 0.9, 1.2, 0.7  # of ln(codes); above SURE it expects other ids
LEAST_GAIN = 0.2  # nats an id, of the right words over shuffled ones
LEAST_AGREEMENT = 0.9


def transcript(model: Model, clip: Clip, prompt: PromptFeatures | None = None) -> Result:
    """Mean negative log-likelihood, in nats an id. prompt: the clip's, where it is known
    already.
    """
    if not model.prompt_encoder.can_hear:
        sentences = message("doctor.language_no_ids")
        return skipped("E", "transcript", sentences)
    prompt = prompt or model.prompt_encoder.voice(clip.samples, clip.rate)
    guess = math.log(model.spec.lm.speech_codes)
    own, _ = nll(model, prompt, clip)
    shuffled, _ = nll(model, prompt, clip, is_shuffled=True)
    figures = {"nll": own, "nll_shuffled": shuffled, "ln_codes": guess, "clip": clip.name}
    figures = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    numbers = f"{own:.1f}", f"{guess:.1f}", f"{shuffled:.1f}"
    if own > SURE * guess:
        sentences = message("doctor.language_other_sounds", nll=numbers[0], nll_guessing=numbers[1])
        return failed("E", "transcript", sentences, figures=figures)
    if not own < GUESSING * guess:
        sentences = message(
            "doctor.language_guesses", nll=numbers[0], nll_guessing=numbers[1], untrained=UNTRAINED
        )
        return failed("E", "transcript", sentences, figures=figures)
    if not own < FAR_BELOW * guess:
        sentences = message("doctor.language_unexpected", nll=numbers[0], nll_guessing=numbers[1])
        return failed("E", "transcript", sentences, figures=figures)
    if not own < shuffled - LEAST_GAIN:
        sentences = message(
            "doctor.language_ignores_words", nll=numbers[0], nll_shuffled=numbers[2]
        )
        return failed("E", "transcript", sentences, figures=figures)
    sentences = message(
        "doctor.language_good", nll=numbers[0], nll_shuffled=numbers[2], nll_guessing=numbers[1]
    )
    return passed("E", "transcript", sentences, figures)


def nll(
    model: Model, prompt: PromptFeatures, clip: Clip, is_shuffled: bool = False
) -> tuple[float, list[int]]:
    """Of the clip's ids, in nats an id; and the best id at each place."""
    ids = prompt.speech_ids[:MOST_IDS]
    scores = forced(model, prompt, clip, ids, is_shuffled).cpu()
    own = scores.gather(1, torch.tensor(ids)[:, None])
    return float(-own.mean()), scores.argmax(1).tolist()


def forced(
    model: Model, prompt: PromptFeatures, clip: Clip, ids: Sequence[int], is_shuffled: bool
) -> Tensor:
    """Log-probabilities (ids, rows) before each of the ids, behind the clip's words as the engine
    lays them out.
    """
    prompt_builder = model.prompt_builder(
        CachedPrompt(model, prompt), request(clip.transcript, clip.language)
    )
    text = prompt_builder.text(clip.transcript)
    if is_shuffled:
        order = torch.randperm(len(text), generator=torch.Generator().manual_seed(3))
        text = [text[i] for i in order.tolist()]
    past = prompt_builder.prefix().fork(len(text) + 1 + len(ids))
    scores = [model.lm.step(model.lm.prefill_embeddings(text), past)]
    scores += [model.lm.step(model.lm.speech([i]), past) for i in ids[:-1]]
    return torch.cat(scores)


def agreement(best: Sequence[int], other: Sequence[int]) -> float:
    return sum(a == b for a, b in zip(best, other, strict=True)) / max(1, len(best))
