"""The first generation's language model: golden numbers, cached = one pass, rows do not touch each
other, no end of positions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scripts.golden_checks import llm1 as golden_llm
from tests.engine.cosyvoice1_small import GOLDEN1, LM_DIMS, small_lm
from tests.engine.cosyvoice_small import random_state
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice.dims_v1 import StackDims
from webui.engine.cosyvoice.llm.interface import LanguageModel
from webui.engine.cosyvoice.llm.qwen2 import SOS, TASK, generate
from webui.engine.cosyvoice.llm.relative_cache import TextKVCache
from webui.engine.cosyvoice.llm.sampler import Sampler, greedy
from webui.engine.cosyvoice.llm.text_lm import RelativeLM
from webui.engine.cosyvoice.relative_attention import TILE
from webui.errors import NotReady

torch.set_num_threads(1)
TEXT, PROMPT_TEXT, PROMPT_SPEECH = [3, 9, 27, 21, 3], [5, 50, 8], [1, 2, 30, 39, 7, 7]
SPEAKER = torch.linspace(-1, 2, LM_DIMS.vector)


@pytest.fixture(scope="module")
def lm() -> RelativeLM:
    return small_lm()


def speak(lm: LanguageModel, seed: int, prefix: TextKVCache | None = None, text=TEXT) -> list[int]:
    return list(
        generate(
            lm,
            (prefix or lm.prefix(PROMPT_TEXT, SPEAKER)).fork(),
            text,
            PROMPT_SPEECH,
            Sampler(seed),
        )
    )


def test_golden_subset():
    assert exceeded(golden_llm.check, GOLDEN1 / "llm") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(golden_llm.check, shared_dir / "golden1" / "llm") == []


@torch.inference_mode()
def one_pass(
    lm: RelativeLM,
    prompt_text: list[int],
    text: list[int],
    speech: list[int],
    speaker: torch.Tensor | None,
) -> torch.Tensor:
    """Scores after every position, nothing cached and nothing looked up: (n, rows)"""
    past = lm.new_cache()
    encoded = lm.llm.embedded(lm.encoded(torch.tensor(prompt_text + text), past.text))
    parts = [lm.embedded(lm.special_embedding(SOS), past)]
    if speaker is not None:
        vector = torch.nn.functional.normalize(speaker.double(), dim=0)
        parts.append(lm.llm.embedded(lm.spk_embed_affine_layer(vector)[None, None]))
    parts += [
        encoded,
        lm.embedded(torch.cat([lm.special_embedding(TASK), lm.speech(speech)], 1), past),
    ]
    return lm.scores(lm.llm(torch.cat(parts, 1), [past.body]))[0]


@pytest.mark.parametrize("prompt_speech", [[], PROMPT_SPEECH])
@pytest.mark.parametrize("speaker", [None, SPEAKER])
def test_cached_decode_equals_one_causal_pass(lm, prompt_speech, speaker):
    step_scores, forced = [], [4, 4, 17, 39, 0, 25, 12, 4, 8]

    def sample(scores, history):
        step_scores.append(scores.clone())
        return forced[len(step_scores) - 1]

    for _ in zip(
        forced, generate(lm, lm.prefix(PROMPT_TEXT, speaker).fork(), TEXT, prompt_speech, sample)
    ):
        pass
    whole = one_pass(lm, PROMPT_TEXT, TEXT, prompt_speech + forced, speaker)
    first = whole.shape[0] - len(forced) - 1
    for i, row in enumerate(step_scores):
        expected = whole[first + i].clone()
        expected[LM_DIMS.end] = row[LM_DIMS.end]
        assert torch.allclose(row, expected, atol=1e-6), i


def test_text_behind_a_prefix_is_encoded_as_one_sequence(lm):
    past, whole = (
        lm.new_cache().text,
        lm.encoded(torch.tensor(PROMPT_TEXT + TEXT), lm.new_cache().text),
    )
    parts = [lm.encoded(torch.tensor(ids), past) for ids in (PROMPT_TEXT, TEXT[:2], TEXT[2:])]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-12)
    assert not torch.allclose(
        lm.encoded(torch.tensor(TEXT), lm.new_cache().text), whole[:, len(PROMPT_TEXT) :], atol=1e-3
    )


def test_the_speaker_and_the_prompt_text_are_heard(lm):
    opening = lm.prefill_embeddings(TEXT, PROMPT_SPEECH)
    scores = [
        lm.step(opening, lm.prefix(*prefix_args))
        for prefix_args in (
            (PROMPT_TEXT, SPEAKER),
            (PROMPT_TEXT, SPEAKER.flip(0)),
            (PROMPT_TEXT, None),
            ([6, 50, 8], SPEAKER),
        )
    ]
    assert all(not torch.allclose(scores[0], other, atol=1e-3) for other in scores[1:])
    assert torch.allclose(
        lm.step(opening, lm.prefix(PROMPT_TEXT, 7 * SPEAKER)), scores[0], atol=1e-9
    ), "a vector's length says nothing"


def test_a_batch_of_different_pasts_is_each_alone(lm):
    openings = [(TEXT, PROMPT_SPEECH), (TEXT[:2], []), (TEXT * 3, PROMPT_SPEECH[:3])]
    pasts, twins = [], []
    for which, (text, speech) in enumerate(openings):
        for caches in (pasts, twins):
            past = lm.prefix(PROMPT_TEXT if which else [], SPEAKER).fork()
            lm.step(lm.prefill_embeddings(text, speech), past)
            caches.append(past)
    assert len({past.length for past in pasts}) == 3
    for ids in ([1, 2, 3], [39, 0, 5], [7, 7, 7]):
        together = lm.step_many(ids, pasts)
        alone = torch.cat(
            [lm.step_many([first], [past]) for first, past in zip(ids, twins, strict=True)]
        )
        assert torch.allclose(together, alone, atol=1e-6)
        assert [past.length for past in pasts] == [past.length for past in twins]


def test_interleaved_requests_equal_each_alone_and_the_prefix_stays(lm):
    prefix = lm.prefix(PROMPT_TEXT, SPEAKER)
    alone = [speak(lm, 1, prefix), speak(lm, 2, prefix, TEXT[:3])]
    running = [
        generate(lm, prefix.fork(), text, PROMPT_SPEECH, Sampler(seed))
        for seed, text in ((1, TEXT), (2, TEXT[:3]))
    ]
    together: list[list[int]] = [[], []]
    while any(running):
        for i, stream in enumerate(running):
            chosen = next(stream, None) if stream else None
            running[i] = stream if chosen is not None else None
            together[i] += [] if chosen is None else [chosen]
    assert together == alone and alone[0] != alone[1]
    assert prefix.length == 2 + len(PROMPT_TEXT) and prefix.text.length == len(PROMPT_TEXT)


def test_request_1_equals_request_50(lm):
    prefix = lm.prefix(PROMPT_TEXT, SPEAKER)
    first = speak(lm, 7, prefix)
    for seed in range(48):
        speak(lm, seed, prefix, TEXT[:1])
    assert speak(lm, 7, prefix) == first != speak(lm, 8, prefix)


def test_the_text_encoders_past_goes_when_the_text_is_read(lm):
    past = lm.prefix(PROMPT_TEXT, SPEAKER).fork()
    lm.step(lm.text(TEXT), past)
    assert past.text.length == len(PROMPT_TEXT + TEXT)
    lm.step(torch.cat([lm.special_embedding(TASK), lm.speech(PROMPT_SPEECH)], 1), past)
    assert past.text is None and past.fork().text is None and past.nbytes == past.body.nbytes


def test_there_is_no_last_position():
    """The published code fails at position 5001.

    A table that had to grow has the rows of one that was long from the start.
    """
    dims = replace(LM_DIMS, encoder=StackDims(16, 1, 16, 1), body=StackDims(16, 1, 16, 1))
    lm, other = small_lm(torch.float32, dims), small_lm(torch.float32, dims)
    attention = other.llm.encoders[0].self_attn
    other.llm.reach(5200)
    assert attention.table.shape[1] >= 5200 and attention.table.shape[1] % TILE == 0
    rows = []
    for first in (lm, other):
        past = first.prefix([], SPEAKER)
        first.step(first.prefill_embeddings(TEXT, [7] * 4990), past)
        rows.append([first.step_many([9], [past]) for _ in range(30)])
        assert past.length > 5010
    assert all(torch.isfinite(a).all() and torch.equal(a, b) for a, b in zip(*rows, strict=True))
    near = lm.llm.encoders[0].self_attn
    assert torch.equal(near.table[:, -1024:], attention.table[:, -1024:])


@pytest.mark.parametrize(("preferred", "least", "most"), [(True, 10, 10), (False, 100, 100)])
def test_length_rules(preferred, least, most):
    lm = small_lm()
    lm.llm_decoder.weight.zero_()
    lm.llm_decoder.bias.zero_()
    lm.llm_decoder.bias[LM_DIMS.end] = 50 if preferred else -50
    ids = speak(lm, 3)
    assert least <= len(ids) <= most and all(0 <= i < LM_DIMS.speech_codes for i in ids)


def test_half_precision_keeps_the_favourite():
    exact, half = small_lm(torch.float32), small_lm(torch.bfloat16)
    scores = [
        lm.step(lm.prefill_embeddings(TEXT, PROMPT_SPEECH), lm.prefix(PROMPT_TEXT, SPEAKER))
        for lm in (exact, half)
    ]
    assert scores[1].dtype == torch.float32
    assert greedy(scores[0][0], []) in scores[1][0].topk(3).indices.tolist()


def test_a_tensor_that_does_not_fit_is_named():
    state = random_state(RelativeLM, LM_DIMS, 3)
    bent = {**state, "llm.encoders.1.norm2.bias": torch.zeros(5)}
    with pytest.raises(NotReady, match=r"llm\.pt.*llm\.encoders\.1\.norm2\.bias"):
        RelativeLM.of(LM_DIMS, bent)
    del state["text_encoder.encoders.0.self_attn.linear_pos.weight"]
    with pytest.raises(NotReady, match=r"linear_pos"):
        RelativeLM.of(LM_DIMS, state)
