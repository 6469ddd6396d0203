"""What happens when the engine's process dies, freezes, hangs or talks nonsense: every listener is
told, and it comes back.
"""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.engine import wild
from tests.engine.contract import ask, whole
from tests.engine.wild import LONG, PACED, QUICK, fault_of, is_alive, ready_again, until
from webui.errors import EngineFault, EngineStalled, KaikouError

engine, prompt = wild.engine, wild.prompt


def test_killed_in_mid_stream_every_stream_is_told_and_it_comes_back(engine, prompt):
    streams = [engine.stream(ask(id=f"k{n}", instruction=LONG), prompt, n) for n in range(2)]
    assert all(next(s) for s in streams)
    before = engine.pid
    os.kill(before, signal.SIGKILL)
    for stream in streams:
        fault = fault_of(stream)
        assert (
            isinstance(fault, EngineFault)
            and fault.code == "engine_lost"
            and "restarted" in fault.en
            and "重启" in fault.zh
        )
        assert next(stream, None) is None
    ready_again(engine)
    assert engine.pid != before and not is_alive(before)
    assert len(whole(engine.stream(ask(), prompt))), "a voice made before is known again"
    assert engine.describe().name == "fake"


def test_waiting_for_an_answer_ends_with_the_process(engine, prompt):
    stream, faults = engine.stream(ask(instruction="stall=1"), prompt), []
    next(stream)
    waiting = threading.Thread(target=lambda: faults.append(fault_of(stream)))
    waiting.start()
    os.kill(engine.pid, signal.SIGKILL)
    waiting.join(10)
    assert faults and faults[0].code == "engine_lost"


@pytest.mark.parametrize("do", ["segv", "exit"])
def test_a_crash_of_its_own_making(engine, prompt, do):
    assert fault_of(engine.stream(ask(instruction=f"do={do} at=1"), prompt)).code == "engine_lost"
    ready_again(engine)
    assert len(whole(engine.stream(ask(), prompt)))


@pytest.mark.parametrize("do", ["device", "hidden_device"])
def test_a_device_that_is_lost_until_the_process_ends_restarts_it(engine, prompt, do):
    other = engine.stream(ask(id="other", instruction=LONG), prompt, 1)
    next(other)
    before = engine.pid
    fault = fault_of(engine.stream(ask(instruction=f"do={do} at=1"), prompt))
    assert isinstance(fault, EngineFault) and fault.code == (
        "device_fault" if do == "device" else "fault"
    )
    assert fault_of(other).code == "device_fault"
    ready_again(engine)
    assert engine.pid != before


def test_what_is_a_lost_device_and_what_is_not():
    from webui.engine.remote.gpu_faults import as_engine_error, is_sticky

    class AcceleratorError(RuntimeError):
        pass

    for words in (
        "CUDA error: device-side assert triggered",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "CUDA error: unspecified launch failure",
    ):
        assert (
            is_sticky(RuntimeError(words))
            and as_engine_error(RuntimeError(words)).code == "device_fault"
        )
    assert is_sticky(AcceleratorError("anything"))
    for words in (
        "CUDA out of memory. Tried to allocate 20 MiB",
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "[enforce fail] DefaultCPUAllocator: can't allocate memory",
    ):
        assert (
            not is_sticky(RuntimeError(words))
            and as_engine_error(RuntimeError(words)).code == "out_of_memory"
        )
    assert (
        as_engine_error(MemoryError()).code == "out_of_memory"
        and as_engine_error(ValueError("shape")).code == "fault"
        and not is_sticky(ValueError("shape"))
    )


def test_frozen_it_is_noticed_killed_and_replaced(engine, prompt):
    stream = engine.stream(ask(instruction=LONG), prompt)
    next(stream)
    before = engine.pid
    os.kill(before, signal.SIGSTOP)
    assert isinstance(fault_of(stream), EngineStalled)
    ready_again(engine)
    assert not is_alive(before) and len(whole(engine.stream(ask(), prompt)))


@pytest.mark.parametrize("do", ["hang", "spin", "hold", "deaf"])
def test_hung_though_its_process_lives_it_is_noticed(engine, prompt, do):
    """hang: a call that does not come back, while the talking threads go on. spin: one that waits
    by computing. hold: one that lets no
    thread go on. deaf: health() hangs.
    """
    before = engine.pid
    stream = engine.stream(ask(instruction=f"do={do} at=1 {PACED}"), prompt)
    assert isinstance(fault_of(stream), EngineStalled)
    ready_again(engine)
    assert engine.pid != before and len(whole(engine.stream(ask(), prompt)))


def test_one_hung_lane_is_noticed_though_the_others_work(engine, prompt):
    """After its listener has gone, since until then it may just be slow."""
    is_over = threading.Event()

    def keep_busy():
        while not is_over.is_set():
            try:
                list(engine.stream(ask(id="busy", instruction="seconds=1"), prompt, 1))
            except KaikouError:
                is_over.wait(0.05)

    hung = threading.Thread(
        target=lambda: fault_of(
            engine.stream(ask(id="hung", instruction="do=hang at=1"), prompt, 0)
        )
    )
    worker = threading.Thread(target=keep_busy)
    hung.start(), worker.start()
    beats = engine._life.beats
    until(lambda: engine._life.beats > beats + 2 * QUICK.beats(QUICK.still_s))
    assert engine.restarts == 0
    engine.cancel("hung")
    ready_again(engine)
    is_over.set()
    hung.join(10), worker.join(10)


def test_slow_steps_are_not_taken_for_a_hung_engine(engine, prompt):
    """A step that computes for longer than stillness is borne: its thread is seen to move."""
    chunks = list(engine.stream(ask(instruction="do=crunch at=1 seconds=1"), prompt))
    assert chunks[-1].last and engine.restarts == 0


def test_garbage_on_the_wire_is_a_named_fault(engine, prompt):
    fault = fault_of(engine.stream(ask(instruction="do=garbage at=1"), prompt))
    assert isinstance(fault, EngineFault) and fault.code == "bad_frame" and fault.zh
    ready_again(engine)
    assert len(whole(engine.stream(ask(), prompt)))


def test_garbage_from_the_studio_ends_the_process_and_a_new_one_comes(engine, prompt):
    engine._life._outbox.put([memoryview(b"GET / HTTP/1.1\r\n\r\n")])
    ready_again(engine)
    assert len(whole(engine.stream(ask(), prompt)))


def test_an_engine_that_calls_itself_broken_is_replaced(engine, prompt):
    fault_of(engine.stream(ask(instruction=f"do=ill at=1 {PACED}"), prompt))
    ready_again(engine)
