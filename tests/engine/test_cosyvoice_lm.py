"""The language model: golden numbers, cached = one pass, requests do not touch each other, length
rules.
"""

from __future__ import annotations

import pytest
import torch

from scripts.golden_checks import llm as golden_llm
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.kv_cache import TorchKVCache
from webui.engine.cosyvoice.llm.qwen2 import SOS, TASK, Qwen2LM, generate
from webui.engine.cosyvoice.llm.sampler import Sampler, greedy

torch.set_num_threads(1)
DIMS = LmDims(
    hidden=32, intermediate=48, layers=2, heads=4, kv_heads=2, text_rows=60, speech_codes=40
)
TEXT, PROMPT_TEXT, PROMPT_SPEECH = [3, 9, 27, 21, 3], [5, 50, 8], [1, 2, 30, 39, 7, 7]


def tiny(seed: int = 0, dtype=torch.float64) -> Qwen2LM:
    torch.manual_seed(seed)
    lm = Qwen2LM(DIMS).to(dtype).requires_grad_(False)
    for weight in lm.parameters():
        weight.normal_(0, 0.3)
    return lm


def speak(lm: Qwen2LM, seed: int, prefix: TorchKVCache | None = None, text=TEXT) -> list[int]:
    cache = (prefix or lm.prefix(PROMPT_TEXT)).fork()
    return list(generate(lm, cache, text, PROMPT_SPEECH, Sampler(seed)))


def test_golden(golden, within):
    golden_llm.check(golden / "llm", within)
    assert within.checked >= 28 and not within.exceeded


@pytest.mark.parametrize("prompt_speech", [[], PROMPT_SPEECH])
def test_cached_decode_equals_one_pass_scoring(prompt_speech):
    lm, step_scores, forced = tiny(), [], [4, 4, 17, 39, 0, 25, 12, 4, 8]

    def sample(scores, history):
        step_scores.append(scores.clone())
        return forced[len(step_scores) - 1]

    for _ in zip(forced, generate(lm, lm.prefix(PROMPT_TEXT).fork(), TEXT, prompt_speech, sample)):
        pass
    whole = torch.cat(
        [
            lm.special_embedding(SOS),
            lm.text(PROMPT_TEXT + TEXT),
            lm.special_embedding(TASK),
            lm.speech(prompt_speech + forced),
        ],
        1,
    )
    scores = lm.scores(lm.forward(whole, lm.new_cache()))[0]
    first = 1 + len(PROMPT_TEXT + TEXT) + 1 + len(prompt_speech) - 1
    for i, row in enumerate(step_scores):
        expected = scores[first + i].clone()
        expected[DIMS.end] = row[DIMS.end]
        assert torch.allclose(row, expected, atol=1e-6), i


def test_later_positions_do_not_change_earlier_ones():
    lm = tiny()
    whole = lm.text(PROMPT_TEXT + TEXT)
    everything = lm.forward(whole, lm.new_cache())
    assert torch.allclose(everything[:, :4], lm.forward(whole[:, :4], lm.new_cache()), atol=1e-12)
    assert not torch.allclose(
        everything[:, 4:5], lm.forward(whole[:, 4:5], lm.new_cache()), atol=1e-3
    )


def test_a_cache_that_grows_gives_the_same_bits():
    lm, runs = tiny(), []
    for capacity in (1, 400):
        cache = lm.new_cache(capacity)
        lm.forward(torch.cat([lm.special_embedding(SOS), lm.text(PROMPT_TEXT)], 1), cache)
        for chosen in range(30):
            last = lm.step(lm.speech([chosen]), cache)
        runs.append(last)
    assert torch.equal(*runs) and cache.capacity == 400


def test_interleaved_requests_equal_each_alone_and_the_prefix_stays():
    lm = tiny()
    prefix = lm.prefix(PROMPT_TEXT)
    alone = [speak(lm, 1, prefix), speak(lm, 2, prefix, TEXT[:3])]
    running = [
        generate(lm, prefix.fork(), TEXT, PROMPT_SPEECH, Sampler(1)),
        generate(lm, prefix.fork(), TEXT[:3], PROMPT_SPEECH, Sampler(2)),
    ]
    together = [[], []]
    while running[0] or running[1]:
        for i, stream in enumerate(running):
            chosen = next(stream, None) if stream else None
            running[i] = stream if chosen is not None else None
            together[i] += [] if chosen is None else [chosen]
    assert together == alone and alone[0] != alone[1]
    assert prefix.length == 1 + len(PROMPT_TEXT)


def test_request_1_equals_request_20():
    lm = tiny()
    prefix = lm.prefix(PROMPT_TEXT)
    first = speak(lm, 7, prefix)
    for seed in range(18):
        speak(lm, seed, prefix, TEXT[:2])
    assert speak(lm, 7, prefix) == first
    assert speak(lm, 8, prefix) != first


def test_the_prompt_text_matters():
    lm = tiny()
    other = lm.prefix([6, 50, 8])
    assert not torch.allclose(
        lm.step(lm.prefill_embeddings(TEXT, []), lm.prefix(PROMPT_TEXT)),
        lm.step(lm.prefill_embeddings(TEXT, []), other),
        atol=1e-3,
    )


@pytest.mark.parametrize(
    "stop,least,most", [(DIMS.end, 10, 10), (DIMS.end + 1, 0, 0), (None, 100, 100)]
)
def test_length_rules(stop, least, most):
    """Minimum 2 and maximum 20 ids per text id; the minimum holds back the end id only, as the
    public code does.
    """
    lm = tiny()
    lm.llm_decoder.weight.zero_()
    lm.llm_decoder.bias[:] = 0
    lm.llm_decoder.bias[DIMS.end :] = -50
    if stop:
        lm.llm_decoder.bias[stop] = 50
    ids = speak(lm, 3)
    assert least <= len(ids) <= most and all(0 <= i < DIMS.speech_codes for i in ids)


def test_closing_stops_the_work(monkeypatch):
    lm, calls = tiny(), []
    forward = Qwen2LM.forward
    monkeypatch.setattr(
        Qwen2LM,
        "forward",
        lambda self, x, cache: calls.append(x.shape[1]) or forward(self, x, cache),
    )
    speech = generate(lm, lm.new_cache(), TEXT, PROMPT_SPEECH, lambda scores, history: 5)
    for _ in range(3):
        next(speech)
    before = len(calls)
    speech.close()
    assert before == len(calls) == 3


def test_rows_of_a_batch_do_not_see_each_other():
    lm = tiny()
    a, b = lm.text([1, 2, 3, 4]), lm.text([9, 8, 7, 6])
    batch_scores = lm.forward(torch.cat([a, b]), lm.new_cache(batch=2))
    assert torch.allclose(batch_scores[:1], lm.forward(a, lm.new_cache()), atol=1e-12)
    assert torch.allclose(batch_scores[1:], lm.forward(b, lm.new_cache()), atol=1e-12)


def test_half_precision_keeps_the_favourite():
    exact, half = tiny(dtype=torch.float32), tiny(dtype=torch.float32).to(torch.bfloat16)
    scores = half.step(half.prefill_embeddings(TEXT, PROMPT_SPEECH), half.prefix(PROMPT_TEXT))
    expected = exact.step(exact.prefill_embeddings(TEXT, PROMPT_SPEECH), exact.prefix(PROMPT_TEXT))
    assert scores.dtype == torch.float32
    assert greedy(expected[0], []) in scores[0].topk(3).indices.tolist()


@pytest.mark.parametrize(
    "change",
    [{"heads": 3}, {"kv_heads": 3}, {"layers": 0}, {"hidden": 4, "heads": 4}, {"mix": (5,)}],
)
def test_sizes_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError):
        LmDims(**{**DIMS.__dict__, **change})
