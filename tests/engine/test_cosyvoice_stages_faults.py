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


def spoilt(told, voice, seed: int, at: int, error: Exception) -> RequestState:
    request = SamplingRequest(seed, 60, 200, Spoilt(at, error))
    return utterance(
        told, voice, [LMTokens(told.lm, lambda: voice.prefix(()), texts(30, 1), (), request)], seed
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
    told = floor()
    voice = CachedPrompt(told.model, prompt)
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
        list(spoilt(told, voice, 9, at, BadInput(Message("So.", "这样。"))).chunks())


def test_a_step_that_fails_for_many_is_taken_one_by_one(floor, prompt):
    told = floor()
    voice = CachedPrompt(told.model, prompt)
    alone = {seed: hear(say(told, voice, seed)) for seed in (1, 2, 3)}
    broken = set()

    def decode_batch(pasts, steps=1):
        if len(pasts) > 1 or pasts[0] in broken:
            broken.update(pasts[:1] if len(broken) < 1 else [])
            raise RuntimeError("no")
        return told.lm.lm.decode(pasts, steps)

    told.lm.decode = decode_batch
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
    voice, seen = CachedPrompt(told.model, prompt), []
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
    assert (
        error.value.code == "out_of_memory"
        and len(hear(say(told, voice, 4, most=40))[1]) == 40 * 960
    )


@pytest.mark.parametrize("stage", ["tokens", "sound"])
def test_a_stage_that_breaks_ends_everybody_with_a_reason_and_nothing_hangs(floor, prompt, stage):
    told = floor()
    voice = CachedPrompt(told.model, prompt)
    running = say(told, voice, 1, most=900).chunks()
    next(running)

    def broken(*_):
        raise MemoryError

    if stage == "tokens":
        told.stages.lm_worker._tell = broken
    else:
        told.stages.audio_worker._count = broken
        told.stages.audio_worker._fail = broken
    with pytest.raises(EngineFault) as error:
        list(running)
    assert error.value.code == "engine_broken"
    until(lambda: told.broken)  # told after the readers are
    assert [e.code for e in told.broken] == ["engine_broken"]
    with pytest.raises(EngineFault):
        next(say(told, voice, 2).chunks())
    with pytest.raises(EngineFault):
        told.stages.prepare(CachedPrompt(told.model, prompt))


def test_text_that_does_not_come_holds_up_nobody(floor, prompt):
    from webui.engine.cosyvoice.llm.streaming_input import TextStream

    told = floor()
    voice, more, lm = CachedPrompt(told.model, prompt), threading.Event(), told.lm

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
            told.stages.scheduler.lock,
            told.stages.scheduler.ids_wanted.notify,
        )
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
        raise BadInput(Message("The pen broke.", "笔坏了。"))

    source = StreamingTextTokens(
        lambda: TextStream(lm, lm.new_cache(64), (), (), Sampler(3)),
        fails(),
        told.stages.scheduler.lock,
        told.stages.scheduler.ids_wanted.notify,
    )
    with pytest.raises(BadInput):
        list(utterance(told, voice, [source], 51).chunks())


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
    told = floor()
    voice = CachedPrompt(told.model, prompt)
    stream = say(told, voice, 1, most=900).chunks()
    next(stream)
    with told.stages.scheduler.lock:
        stream.close()
    assert until(lambda: not told.stages.scheduler.speaking)
    assert len(hear(say(told, voice, 2, most=40))[1]) == 40 * 960 and not told.broken


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
