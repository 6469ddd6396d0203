"""The two stages: a request speaks beside others as it does alone, none can hold up or break another, and nothing runs ahead or stays behind."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import SMALL
from webui.engine.cosyvoice.device import Place
from webui.engine.cosyvoice.lm import Drawing
from webui.engine.cosyvoice.pace import PROFILES, Hops
from webui.engine.cosyvoice.sampler import Sampler
from webui.engine.cosyvoice.sources import Arriving, Drawn, Given
from webui.engine.cosyvoice.stages import Stages
from webui.engine.cosyvoice.stream import Utterance
from webui.engine.cosyvoice.voices import LiveVoice, LiveVoices
from webui.errors import BadInput, Cancelled, EngineFault, NotReady
from webui.types import SpeechRequest

RATE = 24000


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return random_model(SMALL, Place("cpu", "fp32", "test"))


@pytest.fixture(scope="module")
def prompt():
    return random_voice(2.0, SMALL.codes)


class Watched:
    """The language model, counting; `gate(call)` may wait or raise before a call."""

    def __init__(self, lm):
        self.lm, self.dims, self.batches, self.threads, self.gate = lm, lm.dims, [], set(), lambda kind: None

    def __getattr__(self, name):
        return getattr(self.lm, name)

    def step(self, x, past):
        self.gate("step")
        self.threads.add(threading.current_thread().name)
        return self.lm.step(x, past)

    def step_many(self, ids, pasts):
        self.gate("step_many")
        self.threads.add(threading.current_thread().name)
        self.batches.append(len(ids))
        return self.lm.step_many(ids, pasts)


@pytest.fixture
def floor(model):
    """Stages of their own over the shared small model."""
    made = []

    def make(profile: str = "balanced", first: int = 25, whole: bool = False):
        lm = Watched(model.lm)
        own = replace(model, lm=lm)
        broken = []
        stages = Stages(own, LiveVoices(own, 1 << 40), PROFILES[profile], broken.append)
        told = SimpleNamespace(stages=stages, lm=lm, model=own, hops=Hops(first, 25, PROFILES[profile].blocks, whole), broken=broken, first=first)
        made.append(stages)
        return told
    yield make
    for stages in made:
        stages.close(NotReady("The test is over.", "测试结束。"))


def texts(n: int, seed: int) -> list[int]:
    return torch.randint(0, 256, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def say(floor, voice, seed: int, n_text: int = 6, most: int | None = None, segments: int = 1, **more) -> Utterance:
    dims = floor.lm.dims
    never = range(dims.speech_codes, dims.speech_codes + 3) if most is not None else (dims.reserved, dims.fill)
    sources = []
    for index in range(segments):
        text = texts(n_text, 100 * seed + index)
        drawing = Drawing(dims, n_text if most is None else -(-most // 20), Sampler(seed + index, never=never), most)
        sources.append(Drawn(floor.lm, lambda: voice.prefix(voice.prompt.text_ids), text, voice.prompt.speech_ids, drawing))
    return utterance(floor, voice, sources, seed, **more)


def utterance(floor, voice, sources, seed: int, priority: int = 0) -> Utterance:
    request = SpeechRequest(f"r{seed}", "text", "v", seed=seed, priority=priority)
    return Utterance(floor.stages.board, voice, request, sources, floor.hops, floor.stages.profile, RATE)


def whole(chunks) -> np.ndarray:
    return np.concatenate([c.samples for c in chunks])


def ids_of(who: Utterance) -> list[list[int]]:
    return [list(segment.source.ids) for segment in who.segments]


def hear(who: Utterance) -> tuple[list[list[int]], np.ndarray]:
    """Ids and samples. The segments are looked at while they are still there."""
    segments, chunks = list(who.segments), list(who.chunks())
    return [list(segment.source.ids) for segment in segments], whole(chunks)


def until(is_so, limit_s: float = 20.0) -> bool:
    end = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < end:
        time.sleep(0.002)
    return is_so()


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_streams_that_join_and_leave_at_random_speak_as_each_does_alone(floor, prompt, count):
    """Tokens identical, and so the samples; leavers in between change nothing for those who stay."""
    alone = {}
    quiet = floor()
    voice = LiveVoice(quiet.model, prompt)
    for seed in range(count):
        alone[seed] = hear(say(quiet, voice, seed, n_text=4 + seed % 3, segments=1 + seed % 2))
    assert set(quiet.lm.batches) == {1}

    busy, rng, got = floor(), random.Random(count), {}
    voice = LiveVoice(busy.model, prompt)

    def listener(seed: int, after: int) -> None:
        while len(busy.lm.batches) < after and not done.is_set():
            tick.wait(0.005)
        got[seed] = hear(say(busy, voice, seed, n_text=4 + seed % 3, segments=1 + seed % 2))

    def leaver(seed: int, after: int) -> None:
        while len(busy.lm.batches) < after and not done.is_set():
            tick.wait(0.005)
        stream = say(busy, voice, 1000 + seed, n_text=8).chunks()
        next(stream)
        stream.close()

    done, tick = threading.Event(), threading.Event()
    people = [threading.Thread(target=listener, args=(seed, rng.randrange(60) if seed else 0)) for seed in range(count)]
    people += [threading.Thread(target=leaver, args=(seed, rng.randrange(60))) for seed in range(count)]
    for person in people:
        person.start()
    for person in people[:count]:
        person.join(60)
    done.set()
    for person in people:
        person.join(60)
    for seed in range(count):
        assert got[seed][0] == alone[seed][0], f"tokens of {seed}"
        assert np.array_equal(got[seed][1], alone[seed][1])
    assert max(busy.lm.batches) >= 2, "they did step together"
    assert busy.lm.threads == {"cosyvoice-tokens"}
    assert not busy.stages.board.speaking


@pytest.mark.parametrize(("first", "needed"), [(25, 28), (10, 13)])
def test_the_first_flow_call_needs_the_first_hop_and_its_look_ahead_and_no_step_more(floor, prompt, first, needed, request):
    told, calls = floor(first=first), []
    voice = LiveVoice(told.model, prompt, first)
    told.stages.prepare(voice)
    held, flowed = threading.Event(), threading.Event()

    def asked(module, given) -> None:
        calls.append(len(given[0]) * given[0].shape[1])  # both guidance rows of a frame, in one call or in two
        flowed.set()
    hook = told.model.flow.decoder.estimator.register_forward_pre_hook(asked)
    request.addfinalizer(hook.remove)
    who = say(told, voice, 3, most=60)
    source = who.segments[0].source

    def gate(kind):
        if len(source.ids) == needed - 1:
            assert not flowed.wait(0.2), "sound was begun before its ids were there"
            held.set()
        elif len(source.ids) == needed:
            assert flowed.wait(10), "the ids are there and nothing begins"
    told.lm.gate = gate
    chunks = list(who.chunks())
    assert held.is_set() and calls[0] in (2 * first, 2 * 2 * first)
    assert sum(calls) == 2 * 10 * who.computed_frames
    assert who.computed_frames == who.emitted_frames == 2 * 60, "estimator frames per emitted frame: 1"
    assert len(whole(chunks)) == 60 * 960


def test_the_language_model_steps_aside_while_a_first_piece_is_made(floor, prompt, request):
    """On a shared core: the ids of the next piece are wanted a hop later, the first sound now."""
    told, steps = floor(), []
    told.stages.tokens.gives_way = True
    voice = LiveVoice(told.model, prompt)
    told.stages.prepare(voice)

    def asked(module, given) -> None:
        threading.Event().wait(0.02)
        steps.append(len(told.lm.batches))
    hook = told.model.flow.decoder.estimator.register_forward_pre_hook(asked)
    request.addfinalizer(hook.remove)
    chunks = list(say(told, voice, 3, most=100).chunks())
    during = steps[9] - steps[0]  # the first piece asks at least once for each of ten steps
    assert during <= 1
    assert len(whole(chunks)) == 100 * 960, "and goes on afterwards"


def test_closed_stages_leave_the_model_usable(model, floor):
    stages = floor().stages
    stages.close(NotReady("The test is over.", "测试结束。"))
    assert model.flow.decoder.beside is None


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_ids_run_ahead_by_one_hop_and_sound_by_one_chunk(floor, prompt, profile):
    told = floor(profile)
    who = say(told, LiveVoice(told.model, prompt), 5, most=500)
    stream, segment = who.chunks(), who.segments[0]
    for chunk in range(3):
        next(stream)
        assert until(lambda: who._made is not None and not who.writing()[1])
        assert len(segment.source.ids) == told.hops.needed(chunk + 3)
        assert who.emitted_frames == 2 * told.hops.end(chunk + 1)
    stream.close()


def test_a_slow_reader_slows_only_itself(floor, prompt):
    told = floor("throughput")
    voice = LiveVoice(told.model, prompt)
    slow = say(told, voice, 1, most=1000)
    stopped = slow.chunks()
    next(stopped)
    for seed in range(2, 5):
        assert len(hear(say(told, voice, seed, most=100))[1]) == 100 * 960
    assert slow.emitted_frames == 2 * told.hops.end(1) and len(slow.segments[0].source.ids) == told.hops.needed(3)
    next(stopped)
    assert slow.dry_s > 0
    stopped.close()


def test_leaving_frees_everything_and_cancel_comes_between_two_ids(floor, prompt):
    told = floor()
    voice = LiveVoice(told.model, prompt)

    def leave_and_cancel() -> list[weakref.ref]:
        left, cancelled = say(told, voice, 1, most=900), say(told, voice, 2, most=900)
        remains = [weakref.ref(segment) for who in (left, cancelled) for segment in who.segments]
        stream = left.chunks()
        next(stream)
        stream.close()
        seen, source = [], cancelled.segments[0].source
        told.lm.gate = lambda kind: seen.append(len(source.ids)) or (len(source.ids) == 40 and cancelled.cancel())
        with pytest.raises(Cancelled):
            list(cancelled.chunks())
        told.lm.gate = lambda kind: None
        hear(say(told, voice, 3))
        assert len(source.ids) == 40 == max(seen), "not one step more"
        return remains
    remains = leave_and_cancel()
    gc.collect()
    assert not told.stages.board.speaking and [r() for r in remains] == [None, None]


class Spoilt:
    """A source whose draws go wrong at one id."""

    def __init__(self, at: int, error: Exception):
        self._at, self._error = at, error

    def __call__(self, scores, history):
        if len(history) == self._at:
            raise self._error
        return len(history) % 50


def spoilt(told, voice, seed: int, at: int, error: Exception) -> Utterance:
    drawing = Drawing(told.lm.dims, 30, Spoilt(at, error), 200)
    return utterance(told, voice, [Drawn(told.lm, lambda: voice.prefix(()), texts(30, 1), (), drawing)], seed)


@pytest.mark.parametrize("at", [0, 20])
def test_what_fails_in_one_request_ends_that_request_only(floor, prompt, at):
    told = floor()
    voice = LiveVoice(told.model, prompt)
    alone = hear(say(told, voice, 7))
    bad, good, heard = spoilt(told, voice, 8, at, ZeroDivisionError()), say(told, voice, 7), []
    neighbour = threading.Thread(target=lambda: heard.append(hear(good)))
    neighbour.start()
    with pytest.raises(EngineFault) as error:
        list(bad.chunks())
    assert error.value.code == "fault" and error.value.zh
    neighbour.join(30)
    assert heard[0][0] == alone[0] and np.array_equal(heard[0][1], alone[1])
    assert not told.broken
    with pytest.raises(BadInput):
        list(spoilt(told, voice, 9, at, BadInput("So.", "这样。")).chunks())


def test_a_step_that_fails_for_many_is_taken_one_by_one(floor, prompt):
    told = floor()
    voice = LiveVoice(told.model, prompt)
    alone = {seed: hear(say(told, voice, seed)) for seed in (1, 2, 3)}
    broken = set()

    def step_many(ids, pasts):
        if len(ids) > 1 or pasts[0] in broken:
            broken.update(pasts[:1] if len(broken) < 1 else [])
            raise RuntimeError("no")
        return told.lm.lm.step_many(ids, pasts)
    told.lm.step_many = step_many
    got, together = {}, threading.Barrier(3)

    def listen(seed):
        together.wait()
        try:
            got[seed] = hear(say(told, voice, seed))
        except EngineFault as error:
            got[seed] = error
    people = [threading.Thread(target=listen, args=(seed,)) for seed in alone]
    [p.start() for p in people]
    [p.join(30) for p in people]
    failed = [seed for seed in alone if isinstance(got[seed], EngineFault)]
    assert len(failed) <= 1 and not told.broken
    assert all(got[seed][0] == alone[seed][0] for seed in alone if seed not in failed)


def test_sound_that_fails_and_memory_that_is_full_end_their_request(floor, prompt, monkeypatch):
    told = floor()
    voice, seen = LiveVoice(told.model, prompt), []
    told.stages.prepare(voice)
    advance = type(told.model.flow).advance_many

    def full(self, *given, **named):
        seen.append(1)
        if len(seen) == 2:
            raise torch.OutOfMemoryError("full")
        return advance(self, *given, **named)
    monkeypatch.setattr(type(told.model.flow), "advance_many", full)
    stream = say(told, voice, 4, most=100).chunks()
    with pytest.raises(EngineFault) as error:
        list(stream)
    assert error.value.code == "out_of_memory" and len(hear(say(told, voice, 4, most=40))[1]) == 40 * 960


@pytest.mark.parametrize("stage", ["tokens", "sound"])
def test_a_stage_that_breaks_ends_everybody_with_a_reason_and_nothing_hangs(floor, prompt, stage):
    told = floor()
    voice = LiveVoice(told.model, prompt)
    running = say(told, voice, 1, most=900).chunks()
    next(running)

    def broken(*_):
        raise MemoryError
    if stage == "tokens":
        told.stages.tokens._tell = broken
    else:
        told.stages.sound._count = broken
        told.stages.sound._fail = broken
    with pytest.raises(EngineFault) as error:
        list(running)
    assert error.value.code == "engine_broken" and [e.code for e in told.broken] == ["engine_broken"]
    with pytest.raises(EngineFault):
        next(say(told, voice, 2).chunks())
    with pytest.raises(EngineFault):
        told.stages.prepare(LiveVoice(told.model, prompt))


def test_text_that_does_not_come_holds_up_nobody(floor, prompt):
    from webui.engine.cosyvoice.text_stream import TextStream

    told = floor()
    voice, more, lm = LiveVoice(told.model, prompt), threading.Event(), told.lm

    def arriving(wait: bool):
        yield from texts(12, 5)
        if wait:
            assert more.wait(30)
        yield from texts(12, 6)

    def slow(wait: bool) -> Utterance:
        source = Arriving(lambda: TextStream(lm, lm.new_cache(64), (), (), Sampler(3, never=(lm.dims.reserved,))), arriving(wait), told.stages.board)
        return utterance(told, voice, [source], 50)
    expected = hear(slow(False))
    waiting, got = slow(True), []
    listener = threading.Thread(target=lambda: got.append(hear(waiting)))
    listener.start()
    for seed in range(3):
        assert len(hear(say(told, voice, seed, most=60))[1]) == 60 * 960
    assert not got
    more.set()
    listener.join(30)
    assert got[0][0] == expected[0] and np.array_equal(got[0][1], expected[1])

    def fails():
        yield from texts(6, 5)
        raise BadInput("The pen broke.", "笔坏了。")
    source = Arriving(lambda: TextStream(lm, lm.new_cache(64), (), (), Sampler(3)), fails(), told.stages.board)
    with pytest.raises(BadInput):
        list(utterance(told, voice, [source], 51).chunks())


def order_of_work(told, who: list[Utterance]) -> list[int]:
    return [w.request.seed for w in sorted(who, key=lambda w: w.rank())]


def test_who_is_served_first(floor, prompt):
    for name, expected in {"ttfa": [3, 1, 2, 4], "balanced": [1, 3, 2, 4], "throughput": [1, 2, 3, 4]}.items():
        told = floor(name)
        voice = LiveVoice(told.model, prompt)
        dry, rested, new, batch = (utterance(told, voice, [Given([1])], n, priority=5 if n == 4 else 0) for n in (1, 2, 3, 4))
        for w, dry_s in ((dry, -1.0), (rested, 0.3)):
            w._number, w.dry_s = 1, new.born_s + dry_s
        assert order_of_work(told, [batch, rested, new, dry]) == expected, name


def test_no_step_waits_for_company_that_cannot_come(floor, prompt, monkeypatch):
    """A lone request, or one whose only neighbours are slow readers, is stepped at once."""
    waits = []
    told = floor("throughput")
    voice = LiveVoice(told.model, prompt)
    wait = told.stages.board.ids_wanted.wait
    monkeypatch.setattr(told.stages.board.ids_wanted, "wait", lambda timeout=None: waits.append(timeout) or wait(timeout))
    stopped = say(told, voice, 1, most=900).chunks()
    next(stopped)
    assert until(lambda: told.stages.board.speaking[0]._made is not None)
    waits.clear()
    hear(say(told, voice, 2, most=200))
    assert [w for w in waits if w is not None] == []
    assert all(p.company_s <= 0.005 for p in PROFILES.values())
    stopped.close()


def test_hops():
    assert [Hops(25, 25, (1, 1, 2), True).end(n) for n in range(5)] == [25, 50, 100, 150, 200]
    assert [Hops(10, 25, (1, 1, 2), True).end(n) for n in range(5)] == [10, 25, 50, 100, 150]
    whole_hops, pieces = Hops(25, 25, (2,), True), Hops(25, 25, (2,), False)
    assert (whole_hops.piece_end(1, 50), pieces.piece_end(1, 50), pieces.piece_end(1, 75)) == (100, 75, 100)


def test_a_hop_in_pieces_is_the_hop_whole(floor, prompt):
    made = {}
    for whole_hop in (True, False):
        told = floor("throughput", whole=whole_hop)
        made[whole_hop] = hear(say(told, LiveVoice(told.model, prompt), 6, most=190))
    assert made[True][0] == made[False][0]
    assert np.square(made[True][1] - made[False][1]).mean() < 1e-4 * np.square(made[True][1]).mean()
