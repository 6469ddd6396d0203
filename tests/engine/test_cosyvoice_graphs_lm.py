"""The language model over static buffers is the dynamic one: same scores, same ids, whoever else is
there; and it serves from replays alone.
"""

from __future__ import annotations

import gc
import random

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.test_cosyvoice_lm import DIMS, PROMPT_SPEECH, PROMPT_TEXT, TEXT, tiny
from webui.engine.cosyvoice.cuda.capture import Allocator, EagerCapture, Graphs, fit
from webui.engine.cosyvoice.cuda.lm import CapturedLM, LmSizes
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
from webui.errors import EngineFault, NotReady

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
        self.recorder, self.operators = recorder, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not self.recorder.depth:
            self.operators.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def static(lm, sizes: LmSizes = SIZES, capture=None) -> CapturedLM:
    static_lm = CapturedLM(lm, RULE, sizes, capture)
    static_lm.record()
    return static_lm


@pytest.fixture(scope="module")
def pair():
    lm = tiny()
    return lm, static(lm)


def expected(
    lm, seed: int, text=TEXT, prompt_text=PROMPT_TEXT, prompt_speech=PROMPT_SPEECH
) -> list[int]:
    sample = Sampler(seed, RULE, never=DIMS.forbidden_ids(DIMS.end))
    return list(generate(lm, lm.prefix(prompt_text).fork(), text, prompt_speech, sample))


def begin(fast: CapturedLM, prefix, seed: int, text=TEXT, prompt_speech=PROMPT_SPEECH):
    past = prefix.fork(0)
    fast.start(
        fast.prefill_embeddings(text, prompt_speech),
        past,
        SamplingRequest(seed, 2 * len(text), 20 * len(text)),
    )
    return past


def to_the_end(fast: CapturedLM, past, steps: int = 5) -> list[int]:
    out, over = [], False
    while not over:
        (output,) = fast.decode([past], steps)
        out, over = out + output.ids, output.over
    return out


def test_scores_of_every_step_are_the_dynamic_ones(pair):
    """Behind what was prefilled, of two requests of different lengths."""
    lm, fast = pair
    pasts, caches, outputs = [], [], []
    for seed, text in enumerate((TEXT, TEXT[:2])):
        pasts.append(begin(fast, fast.prefix(PROMPT_TEXT), seed, text))
        caches.append(lm.prefix(PROMPT_TEXT).fork())
        reference = lm.step(lm.prefill_embeddings(text, PROMPT_SPEECH), caches[-1])
        assert torch.equal(fast.last[fast.rows[pasts[-1]].slot], reference[0])
    for _ in range(30):
        for past, cache, output in zip(pasts, caches, fast.decode(pasts, 1)):
            if output.ids:
                reference = lm.step(lm.speech(output.ids), cache)[0]
                row = fast.rows[past]
                assert torch.allclose(fast.last[row.slot], reference, atol=1e-6)
                assert row.length == cache.length == int(fast.lengths[row.slot])
                outputs += output.ids
    assert len(outputs) > 20


def test_greedy_through_the_seam_is_the_same_speech(pair):
    lm, fast = pair
    assert list(
        generate(fast, fast.prefix(PROMPT_TEXT).fork(200), TEXT, PROMPT_SPEECH, greedy)
    ) == list(generate(lm, lm.prefix(PROMPT_TEXT).fork(), TEXT, PROMPT_SPEECH, greedy))


@pytest.mark.parametrize("seed", range(6))
def test_ids_drawn_on_the_device_are_those_of_the_sampler(pair, seed):
    lm, fast = pair
    assert to_the_end(fast, begin(fast, fast.prefix(PROMPT_TEXT), seed)) == expected(lm, seed)


def test_text_streaming_through_the_static_model(pair):
    lm, fast = pair
    id_lists = []
    for model in (lm, fast):
        sampler = Sampler(3, RULE, never=DIMS.forbidden_ids(DIMS.end, DIMS.fill))
        stream = TextStream(model, model.new_cache(1), PROMPT_TEXT, PROMPT_SPEECH, sampler)
        id_lists.append(list(stream.speak(iter(TEXT * 3))))
    assert id_lists[0] == id_lists[1] and len(id_lists[0]) > 10


@pytest.mark.parametrize("order", range(4))
def test_joins_and_leaves_at_random_steps_change_nobody(pair, order):
    """Up to 8 at once; slots are used again by others; some leave early; buckets grow and
    shrink.
    """
    lm, fast = pair
    dice = random.Random(order)
    prefix = fast.prefix(PROMPT_TEXT)
    waiting = [(seed, TEXT[: 2 + seed % 4]) for seed in range(14)]
    running, ids_by_seed = [], {}
    fast.graphs.replayed.clear()
    while waiting or running:
        while waiting and len(running) < 8 and dice.random() < 0.6:
            seed, text = waiting.pop(0)
            ids_by_seed[seed] = []
            running.append((seed, text, begin(fast, prefix, seed, text)))
        if not running:
            continue
        chosen = dice.sample(running, dice.randint(1, len(running)))
        decoded = fast.decode([c[2] for c in chosen], dice.randint(1, 8))
        for (seed, text), output in zip([c[:2] for c in chosen], decoded):
            ids_by_seed[seed] += output.ids
            if output.over:
                assert ids_by_seed[seed] == expected(lm, seed, text)
            if output.over or dice.random() < 0.02:
                assert ids_by_seed[seed] == expected(lm, seed, text)[: len(ids_by_seed[seed])]
                running = [r for r in running if r[0] != seed]
        del chosen
    gc.collect()
    assert fast.slots.in_use == 0
    assert {count for count, _ in fast.graphs.replayed} >= {2, 4, 8}


def test_slots_that_are_free_again_are_taken_first(pair):
    """So that those in use stay a short prefix of all, and small graphs do."""
    _, fast = pair
    prefix = fast.prefix(PROMPT_TEXT)
    pasts = [begin(fast, prefix, seed) for seed in range(5)]
    del pasts[:4]
    pasts.append(begin(fast, prefix, 7))
    assert [fast.rows[past].slot for past in pasts] == [4, 0]
    fast.graphs.replayed.clear()
    fast.decode(pasts[1:], 1)
    assert set(fast.graphs.replayed) == {(1, 24)}


def test_a_lost_past_gives_its_slot_back_and_a_full_house_says_so(pair):
    _, fast = pair
    prefix = fast.prefix(PROMPT_TEXT)
    caches = [begin(fast, prefix, seed) for seed in range(8)]
    with pytest.raises(EngineFault) as caught:
        begin(fast, prefix, 9)
    assert caught.value.code == "out_of_memory"
    slot = fast.rows[caches[3]].slot
    del caches[3]
    caches.append(begin(fast, prefix, 9))
    assert fast.rows[caches[-1]].slot == slot and fast.slots.in_use == 8
    caches.clear()  # what was caught still has this frame
    assert not fast.slots.in_use


def test_numbers_are_given_lowest_first_and_all_or_none():
    numbers = Allocator(5, ("tests", "测试"), 1)
    assert numbers.take(3) == [1, 2, 3]
    numbers.give_back([2, 1])
    with pytest.raises(EngineFault):
        numbers.take(5)
    assert numbers.in_use == 1 and numbers.take(3) == [1, 2, 4]


def test_a_request_that_does_not_fit_is_refused_by_name(pair):
    _, fast = pair
    past = fast.new_cache(1)
    fast.step(fast.text([1] * 158), past)
    with pytest.raises(EngineFault) as caught:
        fast.start(fast.text([1]), past, SamplingRequest(1, 2, 5))
    assert caught.value.code == "too_long" and past.length == 158


def test_the_most_is_cut_to_the_slot(pair):
    _, fast = pair
    past = fast.new_cache(1)
    fast.start(fast.text([1] * 140), past, SamplingRequest(4, 0, 5000))
    assert fast.rows[past].left == 20
    assert len(to_the_end(fast, past, 8)) <= 20 and fast.rows[past].length <= 160


def test_recording_leaves_no_trace_and_serving_is_replays_and_copies():
    """After it no step of speaking requests runs an operation outside replays but copies into
    buffers that are there, and the buffers stay where they are.
    """
    recorder = Recorder()
    fast = CapturedLM(tiny(), RULE, SIZES, recorder)
    fast.record()
    buffers = (fast.store, fast.lengths, fast.last, *fast.draws.rows)
    assert (
        not fast.lengths.any()
        and not fast.draws.n_drawn.any()
        and not fast.last.any()
        and fast.draws.done.all()
    )
    addresses, captured = [t.data_ptr() for t in buffers], fast.graphs.sizes
    prefix, pasts = fast.prefix(PROMPT_TEXT), []
    on_host = {"detach", "lift_fresh", "to", "resolve_conj", "resolve_neg", "_to_copy"}
    for seed in range(6):
        pasts.append(begin(fast, prefix, seed))
        with Outside(recorder) as outside:
            fast.decode(pasts, 3)
        assert outside.operators - on_host <= {"select", "slice", "copy_", "zero_"}, (
            outside.operators
        )
    assert addresses == [t.data_ptr() for t in buffers]
    assert fast.graphs.sizes == captured and not fast.graphs.plain


def test_what_was_not_recorded_is_computed_all_the_same():
    lm = tiny()
    fast = CapturedLM(lm, RULE, SIZES)
    assert to_the_end(fast, begin(fast, fast.prefix(PROMPT_TEXT), 3)) == expected(lm, 3)
    assert fast.graphs.plain and not fast.graphs.replayed


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
            Graphs("test", lambda *size: None, kind()).record([(64, 2048)])
        assert caught.value.code == "no_memory" and "2048" in caught.value.en
    with pytest.raises(RuntimeError, match="illegal"):
        Graphs("test", lambda *size: None, Broken()).record([(1,)])


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
    ids, is_redrawn = choose(scores.expand(rows, -1), recent, first, second, RULE)
    assert is_redrawn.any() == bool(repeated)
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
        reference, weights = top_k_top_p(values(kind), RULE)
        ids, probs = best(values(kind)[None].softmax(-1), RULE.top_k)
        assert ids[0, : len(reference)].tolist() == reference.tolist()
        assert torch.equal(probs[0, : len(reference)], weights)


def test_a_requests_numbers_are_its_samplers():
    sampler = Sampler(99)
    numbers = [
        float(torch.rand(1, generator=sampler._random, dtype=torch.float64)) for _ in range(50)
    ]
    assert chances(99, 50).tolist() == numbers
    assert not torch.equal(chances(98, 50), chances(99, 50))
