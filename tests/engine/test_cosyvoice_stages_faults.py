"""What fails in the two stages: one request's own fault ends that request, a stage's fault ends
everybody with a reason, and nothing hangs.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.engine import stage_floor
from tests.engine.stage_floor import hear, say, texts, until, utterance
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.frontend.prompt_cache import CachedPrompt
from webui.engine.cosyvoice.llm import decode
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.sampler import Sampler
from webui.engine.cosyvoice.llm.token_sources import LMTokens, StreamingTextTokens
from webui.engine.cosyvoice.scheduler import scheduler as board_module
from webui.engine.cosyvoice.scheduler.request_state import RequestState
from webui.errors import BadInput, EngineFault, NotReady
from webui.messages import Message

floor, model, prompt = stage_floor.floor, stage_floor.model, stage_floor.prompt


class Spoilt:
    """A source whose draws go wrong at one id."""

    def __init__(self, at: int, error: Exception):
        self._at, self._error = at, error

    def __call__(self, scores, history):
        if len(history) == self._at:
            raise self._error
        return len(history) % 50


def spoilt(rig, voice, seed: int, at: int, error: Exception) -> RequestState:
    request = SamplingRequest(seed, 60, 200, Spoilt(at, error))
    return utterance(
        rig, voice, [LMTokens(rig.lm, lambda: voice.prefix(()), texts(30, 1), (), request)], seed
    )


@pytest.fixture(autouse=True)
def samplers(monkeypatch):
    """The rule of a request that goes wrong is its sampler."""
    monkeypatch.setattr(
        decode,
        "Sampler",
        lambda seed, rule, never: rule if isinstance(rule, Spoilt) else Sampler(seed, rule, never),
    )


@pytest.mark.parametrize("at", [0, 20])
def test_what_fails_in_one_request_ends_that_request_only(floor, prompt, at):
    rig = floor()
    voice = CachedPrompt(rig.model, prompt)
    alone = hear(say(rig, voice, 7))
    bad, good, outputs = spoilt(rig, voice, 8, at, ZeroDivisionError()), say(rig, voice, 7), []
    neighbour = threading.Thread(target=lambda: outputs.append(hear(good)))
    neighbour.start()
    with pytest.raises(EngineFault) as error:
        list(bad.chunks())
    assert error.value.code == "fault" and error.value.zh
    neighbour.join(30)
    assert outputs[0][0] == alone[0] and np.array_equal(outputs[0][1], alone[1])
    assert not rig.broken
    with pytest.raises(BadInput):
        list(spoilt(rig, voice, 9, at, BadInput(Message("So.", "这样。"))).chunks())


def test_a_step_that_fails_for_many_is_taken_one_by_one(floor, prompt):
    rig = floor()
    voice = CachedPrompt(rig.model, prompt)
    alone = {seed: hear(say(rig, voice, seed)) for seed in (1, 2, 3)}
    broken = set()

    def decode_batch(pasts, steps=1):
        if len(pasts) > 1 or pasts[0] in broken:
            broken.update(pasts[:1] if len(broken) < 1 else [])
            raise RuntimeError("no")
        return rig.lm.lm.decode(pasts, steps)

    rig.lm.decode = decode_batch
    results, together = {}, threading.Barrier(3)

    def listen(seed):
        together.wait()
        try:
            results[seed] = hear(say(rig, voice, seed))
        except EngineFault as error:
            results[seed] = error

    people = [threading.Thread(target=listen, args=(seed,)) for seed in alone]
    [p.start() for p in people]
    [p.join(30) for p in people]
    failed = [seed for seed in alone if isinstance(results[seed], EngineFault)]
    assert len(failed) <= 1 and not rig.broken
    assert all(results[seed][0] == alone[seed][0] for seed in alone if seed not in failed)


def test_sound_that_fails_and_memory_that_is_full_end_their_request(floor, prompt, monkeypatch):
    rig = floor()
    voice, calls = CachedPrompt(rig.model, prompt), []
    rig.stages.prepare(voice)
    advance = type(rig.model.flow).advance_many

    def full(self, *args, **named):
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("full")
        return advance(self, *args, **named)

    monkeypatch.setattr(type(rig.model.flow), "advance_many", full)
    stream = say(rig, voice, 4, most=100).chunks()
    with pytest.raises(EngineFault) as error:
        list(stream)
    assert (
        error.value.code == "out_of_memory"
        and len(hear(say(rig, voice, 4, most=40))[1]) == 40 * 960
    )


@pytest.mark.parametrize("stage", ["tokens", "sound"])
def test_a_stage_that_breaks_ends_everybody_with_a_reason_and_nothing_hangs(floor, prompt, stage):
    rig = floor()
    voice = CachedPrompt(rig.model, prompt)
    running = say(rig, voice, 1, most=900).chunks()
    next(running)

    def broken(*_):
        raise MemoryError

    if stage == "tokens":
        rig.stages.lm_worker._tell = broken
    else:
        rig.stages.audio_worker._count = broken
        rig.stages.audio_worker._fail = broken
    with pytest.raises(EngineFault) as error:
        list(running)
    assert error.value.code == "engine_broken"
    until(lambda: rig.broken)  # told after the readers are
    assert [e.code for e in rig.broken] == ["engine_broken"]
    with pytest.raises(EngineFault):
        next(say(rig, voice, 2).chunks())
    with pytest.raises(EngineFault):
        rig.stages.prepare(CachedPrompt(rig.model, prompt))


def test_text_that_does_not_come_holds_up_nobody(floor, prompt):
    from webui.engine.cosyvoice.llm.streaming_input import TextStream

    rig = floor()
    voice, more, lm = CachedPrompt(rig.model, prompt), threading.Event(), rig.lm

    def arriving(wait: bool):
        yield from texts(12, 5)
        if wait:
            assert more.wait(30)
        yield from texts(12, 6)

    def slow(wait: bool) -> RequestState:
        source = StreamingTextTokens(
            lambda: TextStream(
                lm,
                lm.new_cache(64),
                (),
                (),
                Sampler(3, never=lm.dims.forbidden_ids(lm.dims.end, lm.dims.fill)),
            ),
            arriving(wait),
            rig.stages.scheduler.lock,
            rig.stages.scheduler.ids_wanted.notify,
        )
        return utterance(rig, voice, [source], 50)

    expected = hear(slow(False))
    waiting, results = slow(True), []
    listener = threading.Thread(target=lambda: results.append(hear(waiting)))
    listener.start()
    for seed in range(3):
        assert len(hear(say(rig, voice, seed, most=60))[1]) == 60 * 960
    assert not results
    more.set()
    listener.join(30)
    assert results[0][0] == expected[0] and np.array_equal(results[0][1], expected[1])

    def fails():
        yield from texts(6, 5)
        raise BadInput(Message("The pen broke.", "笔坏了。"))

    source = StreamingTextTokens(
        lambda: TextStream(lm, lm.new_cache(64), (), (), Sampler(3)),
        fails(),
        rig.stages.scheduler.lock,
        rig.stages.scheduler.ids_wanted.notify,
    )
    with pytest.raises(BadInput):
        list(utterance(rig, voice, [source], 51).chunks())


class OwnedLock:
    """A lock that says so instead of waiting for ever when the thread that holds it wants it
    again.
    """

    def __init__(self):
        self._lock, self._owner = threading.Lock(), None

    def acquire(self, blocking=True, timeout=-1):
        if blocking and self._owner == threading.get_ident():
            raise RuntimeError("this thread waits for itself")
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner = threading.get_ident()
        return True

    def release(self):
        self._owner = None
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()


def test_a_reader_may_be_lost_in_a_thread_that_holds_the_lock(floor, prompt, monkeypatch):
    """The garbage collector runs wherever memory is taken, and with it the end of a generator that
    nobody holds any more.
    """
    own = SimpleNamespace(**{**vars(threading), "Lock": OwnedLock})
    monkeypatch.setattr(board_module, "threading", own)
    rig = floor()
    voice = CachedPrompt(rig.model, prompt)
    stream = say(rig, voice, 1, most=900).chunks()
    next(stream)
    with rig.stages.scheduler.lock:
        stream.close()
    assert until(lambda: not rig.stages.scheduler.speaking)
    assert len(hear(say(rig, voice, 2, most=40))[1]) == 40 * 960 and not rig.broken


def test_what_broke_at_the_end_of_the_warm_up_is_not_ready(small_model, monkeypatch):
    def breaks(engine, model):
        def fail():
            raise MemoryError

        engine._runner.audio_worker._select_next = fail
        with engine._runner.scheduler.lock:
            engine._runner.scheduler.wake()
        assert until(lambda: engine.health().state == "broken")

    monkeypatch.setattr(CosyVoiceEngine, "_warm_up", breaks)
    engine = CosyVoiceEngine(small_model, threads=1)
    try:
        with pytest.raises(EngineFault) as error:
            engine.start()
        assert error.value.code == "engine_broken" and engine.health().state == "broken"
    finally:
        engine.close()


def test_closed_while_it_loads_it_never_says_that_it_is_ready(small_model, monkeypatch):
    monkeypatch.setattr(CosyVoiceEngine, "_warm_up", lambda engine, model: engine.close())
    engine = CosyVoiceEngine(small_model, threads=1)
    with pytest.raises(NotReady) as error:
        engine.start()
    assert error.value.code == "closed" and engine.health().state == "broken"
