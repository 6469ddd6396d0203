"""The language model over static buffers is the dynamic one: same scores, same ids, whoever else is
there; and it serves from replays alone.
"""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.test_cosyvoice_lm import DIMS, PROMPT_SPEECH, PROMPT_TEXT, TEXT, tiny
from webui.engine.cosyvoice.cuda import lm as lm_module
from webui.engine.cosyvoice.cuda.capture import EagerCapture, Table, fit
from webui.engine.cosyvoice.cuda.lm import LmSizes, StaticLm
from webui.engine.cosyvoice.cuda.sampling import best, chances, choose
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.qwen2 import generate
from webui.engine.cosyvoice.llm.sampler import (
    RasRule,
    Sampler,
    exact_distribution,
    greedy,
    top_k_top_p,
)
from webui.engine.cosyvoice.llm.streaming_input import TextStream
from webui.errors import Busy, EngineFault, NotReady

torch.set_num_threads(1)
RULE = RasRule()
SIZES = LmSizes(slots=(1, 2, 4, 8), reaches=(24, 64, 160), run=8)
MOST = 100


class Recorder:
    """Stands where CUDA's capture stands, with its ways: works run while they are captured, and
    only replays run later. It counts what runs outside of them.
    """

    def __init__(self):
        self.depth = 0

    def add(self, work):
        for _ in range(3):
            self.play(work)
        return lambda: self.play(work)

    def play(self, work):
        self.depth += 1
        work()
        self.depth -= 1


class Outside(TorchDispatchMode):
    """The tensor operations that no replay contains."""

    def __init__(self, recorder: Recorder):
        super().__init__()
        self.recorder, self.seen = recorder, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.recorder.depth:
            self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def static(lm, sizes: LmSizes = SIZES, capture=None) -> StaticLm:
    made = StaticLm(lm, RULE, sizes, capture)
    made.prewarm()
    return made


@pytest.fixture(scope="module")
def pair():
    lm = tiny()
    return lm, static(lm)


def expected(
    lm, seed: int, text=TEXT, prompt_text=PROMPT_TEXT, prompt_speech=PROMPT_SPEECH
) -> list[int]:
    sample = Sampler(seed, RULE, never=DIMS.forbidden_ids(DIMS.end))
    return list(generate(lm, lm.prefix(prompt_text).fork(), text, prompt_speech, sample))


def begin(fast: StaticLm, prefix, seed: int, text=TEXT, prompt_speech=PROMPT_SPEECH):
    past = prefix.fork(0)
    fast.start(
        fast.prefill_embeddings(text, prompt_speech),
        past,
        SamplingRequest(seed, 2 * len(text), 20 * len(text)),
    )
    return past


def to_the_end(fast: StaticLm, past, steps: int = 5) -> list[int]:
    out, over = [], False
    while not over:
        (spoken,) = fast.run([past], steps).take()
        out, over = out + spoken.ids, spoken.over
    return out


def test_scores_of_every_step_are_the_dynamic_ones(pair):
    lm, fast = pair
    cache, past = lm.prefix(PROMPT_TEXT).fork(), fast.prefix(PROMPT_TEXT).fork(50)
    got, want = (
        fast.step(fast.prefill_embeddings(TEXT, PROMPT_SPEECH), past),
        lm.step(lm.prefill_embeddings(TEXT, PROMPT_SPEECH), cache),
    )
    for chosen in range(30):
        assert torch.allclose(got, want, atol=1e-6), chosen
        got, want = fast.step(fast.speech([chosen]), past), lm.step(lm.speech([chosen]), cache)
    assert past.length == cache.length
    assert torch.equal(got.argmax(), want.argmax())


def test_greedy_through_the_seam_is_the_same_speech(pair):
    lm, fast = pair
    assert list(
        generate(fast, fast.prefix(PROMPT_TEXT).fork(200), TEXT, PROMPT_SPEECH, greedy)
    ) == list(generate(lm, lm.prefix(PROMPT_TEXT).fork(), TEXT, PROMPT_SPEECH, greedy))


def test_long_inputs_are_fed_in_pieces(pair, monkeypatch):
    monkeypatch.setattr(lm_module, "MAX_PREFILL", 16)
    lm, fast = pair
    ids = [i % DIMS.speech_codes for i in range(53)]
    past = fast.new_cache()
    got = fast.step(fast.prefill_embeddings(TEXT, ids), past)
    assert torch.allclose(got, lm.step(lm.prefill_embeddings(TEXT, ids), lm.new_cache()), atol=1e-6)
    assert int(fast.lengths[past.slot]) == past.length == 59


def test_rows_of_step_many_are_the_single_steps(pair):
    lm, fast = pair
    pasts, caches = [], []
    for n in (1, 4, 9):
        pasts.append(fast.new_cache())
        caches.append(lm.new_cache())
        fast.step(fast.text(range(n)), pasts[-1])
        lm.step(lm.text(range(n)), caches[-1])
    for ids in ([1, 2, 3], [7, 7, 39], [0, 5, 11]):
        got = fast.step_many(ids, pasts)
        for row, one, cache in zip(got, ids, caches):
            assert torch.allclose(row, lm.step(lm.speech([one]), cache)[0], atol=1e-6)
    assert torch.allclose(
        fast.step_many([8], pasts[1:2])[0], lm.step(lm.speech([8]), caches[1])[0], atol=1e-6
    )
    assert torch.allclose(
        fast.step_many([8, 8, 8], pasts)[2], lm.step(lm.speech([8]), caches[2])[0], atol=1e-6
    )


@pytest.mark.parametrize("seed", range(6))
def test_ids_drawn_on_the_device_are_those_of_the_sampler(pair, seed):
    lm, fast = pair
    assert to_the_end(fast, begin(fast, fast.prefix(PROMPT_TEXT), seed)) == expected(lm, seed)


def test_text_streaming_through_the_static_model(pair):
    lm, fast = pair
    said = []
    for model in (lm, fast):
        sampler = Sampler(3, RULE, never=DIMS.forbidden_ids(DIMS.end, DIMS.fill))
        stream = TextStream(model, model.new_cache(1), PROMPT_TEXT, PROMPT_SPEECH, sampler)
        said.append(list(stream.speak(iter(TEXT * 3))))
    assert said[0] == said[1] and len(said[0]) > 10


@pytest.mark.parametrize("order", range(4))
def test_joins_and_leaves_at_random_steps_change_nobody(pair, order):
    """Up to 8 at once; slots are used again by others; some leave early; buckets grow and
    shrink.
    """
    lm, fast = pair
    dice = random.Random(order)
    prefix = fast.prefix(PROMPT_TEXT)
    waiting = [(seed, TEXT[: 2 + seed % 4]) for seed in range(14)]
    running, said = [], {}
    fast.table.played.clear()
    while waiting or running:
        while waiting and len(running) < 8 and dice.random() < 0.6:
            seed, text = waiting.pop(0)
            said[seed] = []
            running.append((seed, text, begin(fast, prefix, seed, text)))
        if not running:
            continue
        chosen = dice.sample(running, dice.randint(1, len(running)))
        for (seed, text, past), spoken in zip(
            chosen, fast.run([c[2] for c in chosen], dice.randint(1, 8)).take()
        ):
            said[seed] += spoken.ids
            if spoken.over:
                assert said[seed] == expected(lm, seed, text)
            if spoken.over or dice.random() < 0.02:
                assert said[seed] == expected(lm, seed, text)[: len(said[seed])]
                running = [r for r in running if r[0] != seed]
                past.close()
    assert fast.slots.in_use == 0
    assert {k[1] for k in fast.table.played if k[0] == "tick"} >= {1, 2, 4, 8}


def test_requests_move_down_when_others_leave(pair):
    lm, fast = pair
    prefix = fast.prefix(PROMPT_TEXT)
    pasts = [begin(fast, prefix, seed) for seed in range(5)]
    first = [spoken.ids for spoken in fast.run(pasts, 4).take()]
    for past in pasts[:4]:
        past.close()
    before = fast.table.played["tick", 1, 24]
    (spoken,) = fast.run(pasts[4:], 3).take()
    assert pasts[4].slot == 0 and fast.table.played["tick", 1, 24] == before + 3
    rest = [] if spoken.over else to_the_end(fast, pasts[4])
    assert first[4] + spoken.ids + rest == expected(lm, 4)


def test_two_runs_may_be_under_way_at_once(pair):
    lm, fast = pair
    past = begin(fast, fast.prefix(PROMPT_TEXT), 1)
    runs = [fast.run([past], 4) for _ in range(3)]
    ids = [i for run in runs for i in run.take()[0].ids]
    assert ids == expected(lm, 1)[: len(ids)] and len(ids) >= 10 and past.pending == 0
    assert past.length == int(fast.lengths[past.slot])


def test_a_lost_past_gives_its_slot_back_and_a_full_house_says_so(pair):
    _, fast = pair
    held = [fast.new_cache() for _ in range(8)]
    with pytest.raises(Busy):
        fast.new_cache()
    taken = held[3].slot
    del held[3]
    assert fast.new_cache().slot == taken
    held[0].close()
    held[0].close()
    assert fast.slots.in_use == 6


def test_a_request_that_does_not_fit_is_refused_by_name(pair):
    _, fast = pair
    past = fast.new_cache()
    past.reserve(10**6)  # a wish, not a claim
    fast.step(fast.text([1] * 160), past)
    for more in (lambda: fast.step(fast.text([1]), past), lambda: fast.step_many([1], [past])):
        with pytest.raises(EngineFault) as caught:
            more()
        assert caught.value.code == "too_long"


def test_the_most_is_cut_to_the_slot(pair):
    _, fast = pair
    past = fast.new_cache()
    fast.start(fast.text([1] * 140), past, SamplingRequest(4, 0, 5000))
    assert past.left == 20
    ids = to_the_end(fast, past, 8)
    assert len(ids) <= 20 and past.length <= 160


def test_prewarm_leaves_no_trace_and_serving_is_replays_and_copies():
    """After prewarm no step of speaking requests runs an operation outside replays but copies into
    buffers that are there, and the buffers stay where they are.
    """
    recorder = Recorder()
    fast = StaticLm(tiny(), RULE, SIZES, recorder)
    fast.prewarm()
    assert (
        not fast.lengths.any()
        and not fast.draws.drawn.any()
        and not fast.scores.any()
        and fast.draws.done.all()
    )
    kept = [t.data_ptr() for t in (fast.store, fast.lengths, fast.scores, *fast.draws.rows)]
    captured = len(fast.table)
    prefix = fast.prefix(PROMPT_TEXT)
    x = fast.prefill_embeddings(TEXT, PROMPT_SPEECH)
    pasts = []
    for seed in range(6):
        pasts.append(prefix.fork(0))
        fast.start(x, pasts[-1], SamplingRequest(seed, 5, 20))
        with Outside(recorder) as outside:
            fast.run(pasts, 3).take()
        assert outside.seen <= {"select", "slice", "copy_", "fill_", "zero_"}, outside.seen
    for past in pasts[:4]:
        past.close()
    with Outside(recorder) as outside:
        fast.run(pasts[4:], 8).take()
    assert outside.seen <= {"select", "slice", "copy_", "fill_", "zero_"}, outside.seen
    assert kept == [t.data_ptr() for t in (fast.store, fast.lengths, fast.scores, *fast.draws.rows)]
    assert len(fast.table) == captured and fast.table.refused == 0


def test_what_was_not_captured_is_refused():
    fast = StaticLm(tiny(), RULE, SIZES)
    past = fast.new_cache()
    fast.start(fast.text([1]), past, SamplingRequest(1, 1, 5))
    with pytest.raises(EngineFault) as caught:
        fast.run([past], 1)
    assert caught.value.code == "no_graph" and fast.table.refused == 1


def test_memory_that_ends_while_capturing_is_named():
    class Full(EagerCapture):
        def add(self, work):
            raise torch.OutOfMemoryError("no room")

    class FullWhileRecording(EagerCapture):
        def add(self, work):
            try:
                raise torch.OutOfMemoryError("no room")
            finally:
                raise RuntimeError("operation failed due to a previous error during capture")

    class Broken(EagerCapture):
        def add(self, work):
            raise RuntimeError("an illegal address")

    for kind in (Full, FullWhileRecording):
        with pytest.raises(NotReady) as caught:
            Table(kind()).fill({("tick", 64, 2048): lambda: None})
        assert caught.value.code == "no_memory" and "2048" in caught.value.en
    with pytest.raises(RuntimeError, match="illegal"):
        Table(Broken()).fill({1: lambda: None})


def test_fit():
    assert [fit((1, 4, 8), n) for n in (0, 1, 2, 4, 5)] == [1, 1, 4, 4, 8]
    with pytest.raises(ValueError, match="largest bucket"):
        fit((1, 4), 5)


# -- the law ---------------------------------------------------------------------------------------


def values(kind: str, size: int = 60) -> torch.Tensor:
    out = 2 * torch.randn(size, generator=torch.Generator().manual_seed(1))
    if kind == "ties":
        out = (out * 1.5).round()
    if kind == "masked":
        out[torch.arange(0, size, 3)] = -torch.inf
    if kind == "few":
        out[4:] = -torch.inf
    return out.log_softmax(-1)


@pytest.mark.parametrize("kind", ["plain", "ties", "masked", "few"])
@pytest.mark.parametrize("repeated", [0, 1, 3])
def test_draws_on_the_device_follow_the_law(kind, repeated):
    scores, rows = values(kind), 20000
    history = top_k_top_p(scores, RULE)[0][:repeated].tolist()
    recent = torch.full((rows, RULE.window), -1)
    recent[:, : len(history)] = torch.tensor(history, dtype=torch.long)
    first, second = torch.rand(
        2, rows, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    ids, again = choose(scores.expand(rows, -1), recent, first, second, RULE)
    assert again.any() == bool(repeated)
    exact = exact_distribution(scores, history, RULE)
    counts = ids.flatten().bincount(minlength=len(scores)).double()
    assert not counts[exact == 0].any()
    often = exact * rows >= 5
    chi = ((counts - exact * rows).square() / (exact * rows))[often].sum()
    degrees = int(often.sum()) - 1
    assert chi < degrees + 5 * (2 * degrees) ** 0.5 + 5, (float(chi), degrees)


def test_of_equals_the_lower_id_comes_first():
    probs = torch.tensor([[0.1, 0.3, 0.1, 0.3, 0.2]])
    ids, sizes = best(probs, 4)
    assert ids.tolist() == [[1, 3, 4, 0]]
    assert torch.equal(sizes, probs.gather(1, ids))


def test_ids_equal_the_nucleus_of_the_sampler():
    for kind in ("plain", "ties", "masked"):
        want, weights = top_k_top_p(values(kind), RULE)
        ids, probs = best(values(kind)[None].softmax(-1), RULE.top_k)
        assert ids[0, : len(want)].tolist() == want.tolist()
        assert torch.equal(probs[0, : len(want)], weights)


def test_a_requests_numbers_are_its_samplers():
    sampler = Sampler(99)
    numbers = [
        float(torch.rand(1, generator=sampler._random, dtype=torch.float64)) for _ in range(50)
    ]
    assert chances(99, 50).tolist() == numbers
    assert not torch.equal(chances(98, 50), chances(99, 50))
