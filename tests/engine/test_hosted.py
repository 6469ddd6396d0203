"""An engine in a process of its own: what crosses the wire, what happens when the process dies, freezes or hangs, and that nothing is left behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.engine.contract import ask, whole
from tests.engine.fake import RATE, FakeEngine
from webui.engine.hosted import HostedEngine, Patience
from webui.errors import BadInput, Cancelled, EngineFault, EngineStalled, KaikouError, NotReady, TooLarge

QUICK = Patience(beat_s=0.1, frozen_s=1.0, still_s=1.0, start_frozen_s=20, start_still_s=20, back_off_s=(0.0,), max_restarts=100)
LONG = "seconds=60 chunk=0.2"
PACED = LONG + " rtf=1"
CLIP = np.sin(np.arange(RATE * 4) / 20).astype(np.float32)


@contextmanager
def hosted(patience: Patience = QUICK):
    with unstarted("", None, patience) as engine:
        engine.start()
        yield engine


@contextmanager
def unstarted(trouble: str, marks: Path | None, patience: Patience = QUICK):
    """trouble: what goes wrong in starting; marks: counts the starts, a letter each."""
    engine = HostedEngine("wild", {"start": trouble, "marks": str(marks or "")}, patience, program="tests.engine.hosted_child")
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def engine():
    with hosted() as made:
        yield made


@pytest.fixture
def prompt(engine):
    return engine.encode(CLIP, RATE, "", "en")


def until(what, limit_s: float = 20.0):
    """Waits for something that is bound to come; the limit is there to fail, not to measure."""
    end = time.monotonic() + limit_s
    while not (got := what()) and time.monotonic() < end:
        time.sleep(0.01)
    assert got
    return got


def ready_again(engine, n: int = 1):
    until(lambda: engine.restarts >= n and engine.health().state == "ready" and engine.pid)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" if Path("/proc/self/stat").exists() else os.kill(pid, 0) is None
    except (OSError, ProcessLookupError):
        return False


def group(pid: int) -> list[int]:
    """Living processes of a process group."""
    told = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return [int(p) for p, g, s in (line.split()[:3] for line in told.splitlines()) if int(g) == pid and not s.startswith("Z")]


# ---- what crosses ---------------------------------------------------------------------------------------------------

def test_everything_is_as_in_the_same_process(engine, prompt):
    direct = FakeEngine()
    direct.start()
    mine = direct.encode(CLIP, RATE, "", "en")
    assert prompt == mine and engine.describe() == direct.describe() and engine.health().state == "ready"
    ours, theirs = list(engine.stream(ask(), prompt)), list(direct.stream(ask(), mine))
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a.samples, b.samples) and a.samples.dtype == np.float32
        assert all(getattr(a, f.name) == getattr(b, f.name) for f in dataclasses.fields(a) if f.name != "samples")
    made = whole(engine.convert(ask(), prompt, CLIP, RATE))
    assert np.array_equal(made, whole(direct.convert(ask(), mine, CLIP, RATE))) and len(made) == len(CLIP)
    assert engine.notes(ask(instruction="sing")) == direct.notes(ask(instruction="sing")) and engine.notes(ask()) == []
    engine.prepare(prompt)


def test_errors_arrive_as_they_are(engine, prompt):
    with pytest.raises(BadInput) as error:
        engine.encode(CLIP[:100], RATE, "", "en")
    assert (error.value.code, error.value.en, error.value.zh, error.value.status) == ("too_short", "The clip is too short.", "音频太短。", 422)
    for do, code in (("bug", "fault"), ("memory", "out_of_memory")):
        with pytest.raises(EngineFault) as fault:
            list(engine.stream(ask(instruction=f"do={do}"), prompt))
        assert fault.value.code == code and fault.value.zh
    pid = engine.pid
    assert whole(engine.stream(ask(), prompt)).size and engine.restarts == 0 and engine.pid == pid, "a failed request is no reason to restart"
    with pytest.raises(TooLarge):
        engine.encode(np.zeros(17 << 20, np.float32), 48000, "", "en")


def test_every_named_error_crosses_with_all_it_says():
    from webui.engine.hosted.words import KINDS, error_of, words_of_error

    class Ours(BadInput):
        code = "ours"
    for kind in KINDS.values():
        error = kind("An English sentence.", "一句中文。", code="some_code", param="field", retry_after_s=7)
        back = error_of(words_of_error(error))
        assert type(back) is kind and (back.en, back.zh, back.code, back.param, back.retry_after_s) == ("An English sentence.", "一句中文。", "some_code", "field", 7)
    assert type(error_of(words_of_error(Ours("a", "b")))) is BadInput and error_of(words_of_error(Ours("a", "b"))).code == "ours"
    assert type(error_of({"kind": "SystemExit", "en": "a", "zh": "b"})) is EngineFault


def test_one_question_per_step_and_nothing_runs_ahead(engine, prompt, tmp_path):
    """Rule 5: the child has made as many chunks as were asked for."""
    stream = engine.stream(ask(instruction=LONG), prompt)
    assert [next(stream).number for _ in range(3)] == [0, 1, 2]
    until(lambda: engine.notes(ask()) == [])
    assert next(stream).number == 3
    stream.close()


def test_eight_streams_at_once_and_a_slow_reader_slows_only_itself(engine, prompt):
    direct, got = whole(engine.stream(ask(), prompt)), {}
    slow = engine.stream(ask(id="slow", instruction=LONG), prompt, 0)
    next(slow)

    def read(n):
        got[n] = whole(engine.stream(ask(id=f"t{n}"), prompt, n % 2))
    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert len(got) == 8 and all(np.array_equal(x, direct) for x in got.values())
    assert next(slow).number == 1
    slow.close()


def test_cancel_within_one_step_while_others_go_on(engine, prompt):
    one, other = (engine.stream(ask(id=i, instruction=LONG), prompt, n) for n, i in enumerate("ab"))
    next(one), next(other)
    engine.cancel("a")
    with pytest.raises(Cancelled):
        next(one)
    assert next(other).number == 1 and next(one, None) is None
    other.close()


def test_text_that_is_still_arriving(engine, prompt):
    taken = []

    def pieces():
        for word in ["One two.", "Three four.", "Five."]:
            taken.append(word)
            yield word
    stream = engine.stream_text(ask(), prompt, pieces())
    first = next(stream)
    assert first.number == 0 and taken == ["One two."], "only what was needed has been taken"
    assert list(stream)[-1].last and len(taken) == 3


def test_text_whose_source_fails_or_is_given_up(engine, prompt):
    def broken(error):
        yield "One two."
        raise error
    with pytest.raises(BadInput, match="no letters"):
        list(engine.stream_text(ask(), prompt, broken(BadInput("There are no letters.", "没有字。"))))
    with pytest.raises(EngineFault):
        list(engine.stream_text(ask(), prompt, broken(ValueError("the typist left"))))
    for n in range(3):
        stream = engine.stream_text(ask(id=f"g{n}"), prompt, iter(["One two."] * 9))
        next(stream)
        stream.close()
    assert len(whole(engine.stream(ask(), prompt)))
    until(lambda: not [t for t in threading.enumerate() if t.name == "engine-text"])
    assert engine._life.wanted == {}


def test_a_person_who_thinks_is_no_hung_engine(engine, prompt):
    go_on, seen = threading.Event(), []

    def pieces():
        yield "One two."
        go_on.wait(20)
        yield "Three."
    thread = threading.Thread(target=lambda: seen.extend(engine.stream_text(ask(), prompt, pieces())))
    thread.start()
    beats = engine._life.beats
    until(lambda: engine._life.beats > beats + 2 * QUICK.beats(QUICK.still_s))
    go_on.set()
    thread.join(20)
    assert seen[-1].last and engine.restarts == 0


def test_a_voice_is_sent_once_and_again_when_it_was_forgotten(engine):
    life = engine._life
    voices = [engine.encode(CLIP * level, RATE, "", "en") for level in (0.2, 0.5, 1.0)]
    sent, queue = [], life._outbox

    class Counting:
        get = queue.get

        def put(self, parts):
            sent.append(parts is not None and b'{"op": "voice"' in bytes(parts[0]))
            queue.put(parts)
    life._outbox = Counting()
    for _ in range(3):
        for voice in voices:
            next(engine.stream(ask(), voice))
    assert sent.count(True) == 3
    life._max_voices_bytes = 1  # room for one
    sounds = [whole(engine.stream(ask(), v)) for v in voices * 2]
    assert sent.count(True) > 6 and all(np.array_equal(a, b) for a, b in zip(sounds[:3], sounds[3:]))


# ---- what befalls it --------------------------------------------------------------------------------------------------

def fault_of(stream) -> KaikouError:
    with pytest.raises(KaikouError) as error:
        for _ in range(2000):
            next(stream)
    return error.value


def test_killed_in_mid_stream_every_stream_is_told_and_it_comes_back(engine, prompt):
    streams = [engine.stream(ask(id=f"k{n}", instruction=LONG), prompt, n) for n in range(2)]
    assert all(next(s) for s in streams)
    before = engine.pid
    os.kill(before, signal.SIGKILL)
    for stream in streams:
        fault = fault_of(stream)
        assert isinstance(fault, EngineFault) and fault.code == "engine_lost" and "restarted" in fault.en and "重启" in fault.zh
        assert next(stream, None) is None
    ready_again(engine)
    assert engine.pid != before and not is_alive(before)
    assert len(whole(engine.stream(ask(), prompt))), "a voice made before is known again"
    assert engine.describe().name == "fake"


def test_waiting_for_an_answer_ends_with_the_process(engine, prompt):
    stream, told = engine.stream(ask(instruction="stall=1"), prompt), []
    next(stream)
    waiting = threading.Thread(target=lambda: told.append(fault_of(stream)))
    waiting.start()
    os.kill(engine.pid, signal.SIGKILL)
    waiting.join(10)
    assert told and told[0].code == "engine_lost"


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
    assert isinstance(fault, EngineFault) and fault.code == ("device_fault" if do == "device" else "fault")
    assert fault_of(other).code == "device_fault"
    ready_again(engine)
    assert engine.pid != before


def test_what_is_a_lost_device_and_what_is_not():
    from webui.engine.hosted.troubles import is_sticky, named

    class AcceleratorError(RuntimeError):
        pass
    for words in ("CUDA error: device-side assert triggered", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "CUDA error: unspecified launch failure"):
        assert is_sticky(RuntimeError(words)) and named(RuntimeError(words)).code == "device_fault"
    assert is_sticky(AcceleratorError("anything"))
    for words in ("CUDA out of memory. Tried to allocate 20 MiB", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "[enforce fail] DefaultCPUAllocator: can't allocate memory"):
        assert not is_sticky(RuntimeError(words)) and named(RuntimeError(words)).code == "out_of_memory"
    assert named(MemoryError()).code == "out_of_memory" and named(ValueError("shape")).code == "fault" and not is_sticky(ValueError("shape"))


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
    """hang: a call that does not come back, while the talking threads go on. spin: one that waits by computing. hold: one that lets no
    thread go on. deaf: health() hangs."""
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
    hung = threading.Thread(target=lambda: fault_of(engine.stream(ask(id="hung", instruction="do=hang at=1"), prompt, 0)))
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


# ---- restarting ---------------------------------------------------------------------------------------------------------

def test_while_it_restarts_requests_are_told_when_to_come_again(prompt):
    with hosted(dataclasses.replace(QUICK, back_off_s=(30.0,))) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        health = until(lambda: engine.health().state == "starting" and engine.health())
        assert "restarted" in health.reason and "重启" in health.reason_zh
        for call in (lambda: engine.stream(ask(), prompt), lambda: engine.notes(ask()), lambda: engine.encode(CLIP, RATE, "", "en"), lambda: engine.prepare(prompt)):
            with pytest.raises(NotReady) as refused:
                call()
            assert refused.value.code == "notready" and refused.value.retry_after_s >= 1 and refused.value.zh
        assert engine.describe().name == "fake"


def test_the_fourth_failure_in_the_window_is_the_last():
    with hosted(dataclasses.replace(QUICK, max_restarts=3)) as engine:
        for n in range(3):
            os.kill(engine.pid, signal.SIGKILL)
            ready_again(engine, n + 1)
        os.kill(engine.pid, signal.SIGKILL)
        health = until(lambda: engine.health().state == "broken" and engine.health())
        assert "4 times within 10 min" in health.reason and "killed" in health.reason and "4 次" in health.reason_zh
        with pytest.raises(NotReady) as refused:
            engine.notes(ask())
        assert refused.value.code == "broken" and engine.restarts == 3 and engine.pid is None


def test_failures_longer_ago_than_the_window_are_forgiven():
    with hosted(dataclasses.replace(QUICK, max_restarts=1, window_s=0.0)) as engine:
        for n in range(3):
            os.kill(engine.pid, signal.SIGKILL)
            ready_again(engine, n + 1)


def test_the_back_off_grows():
    waits = []
    with hosted(dataclasses.replace(QUICK, max_restarts=3, back_off_s=(0.0, 0.25, 0.5))) as engine:
        wait, pause = engine._closing.wait, {0.0, 0.25, 0.5}
        engine._closing.wait = lambda s: (waits.append(s) if s in pause else None, wait(s))[1]
        for n in range(3):
            os.kill(engine.pid, signal.SIGKILL)
            ready_again(engine, n + 1)
    assert waits == [0.0, 0.25, 0.5]


# ---- starting ---------------------------------------------------------------------------------------------------------------

def test_an_engine_that_cannot_start_says_why_and_is_not_tried_again(tmp_path):
    marks = tmp_path / "starts"
    with unstarted("refuse", marks) as engine:
        with pytest.raises(NotReady) as refused:
            engine.start()
        assert (refused.value.code, refused.value.param, refused.value.en) == ("model_file", "llm.pt", "No weights in this folder.")
        assert engine.health().state == "broken" and engine.health().reason == "No weights in this folder."
        until(lambda: engine._life.has_ended())
    assert marks.read_text() == "x"


def test_a_bug_in_starting_is_told_as_one(tmp_path):
    with unstarted("bug", tmp_path / "m") as engine, pytest.raises(NotReady, match="by nothing"):
        engine.start()


def test_killed_while_loading_it_is_tried_again_and_not_for_ever(tmp_path):
    with unstarted("die once", tmp_path / "a") as engine:
        engine.start()
        assert engine.health().state == "ready" and engine.restarts == 1
    with unstarted("die", tmp_path / "b", dataclasses.replace(QUICK, max_restarts=2)) as engine, pytest.raises(NotReady, match="3 times"):
        engine.start()
    assert (tmp_path / "b").read_text() == "xxx"


def test_a_restart_that_cannot_start_is_tried_as_often_as_a_crash(tmp_path):
    with unstarted("die later", tmp_path / "a", dataclasses.replace(QUICK, max_restarts=3)) as engine:
        engine.start()
        os.kill(engine.pid, signal.SIGKILL)
        until(lambda: engine.health().state == "broken")
    assert (tmp_path / "a").read_text() == "xxxx"


def test_the_thread_that_started_it_may_end():
    """Linux would end the process together with the thread that made it."""
    with unstarted("", None) as engine:
        thread = threading.Thread(target=engine.start)
        thread.start()
        thread.join()
        beats, pid = engine._life.beats, engine.pid
        until(lambda: engine._life.beats > beats + 8)
        assert engine.pid == pid and engine.restarts == 0


def test_an_unknown_engine_is_refused():
    engine = HostedEngine("os.system", {"command": "true"}, QUICK)
    with pytest.raises(NotReady, match="no engine"):
        engine.start()
    engine.close()


def test_closed_while_it_starts():
    engine, told = HostedEngine("wild", {"start_s": 60.0}, QUICK, program="tests.engine.hosted_child"), []

    def start():
        with pytest.raises(NotReady) as error:
            engine.start()
        told.append(error.value.code)
    thread = threading.Thread(target=start)
    thread.start()
    pid = until(lambda: engine.pid)
    engine.close()
    thread.join(20)
    assert told == ["closing"] and not is_alive(pid)


# ---- nothing is left ----------------------------------------------------------------------------------------------------------

def counts() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc")
def test_descriptors_threads_and_processes_come_back():
    def round_trip():
        with hosted() as engine:
            prompt = engine.encode(CLIP, RATE, "", "en")
            stream = engine.stream(ask(instruction=f"do=bring {LONG}"), prompt)
            next(stream)
            first = engine.pid
            os.kill(first, signal.SIGKILL)
            fault_of(stream)
            ready_again(engine)
            second = engine.pid
        until(lambda: not group(first) and not group(second))
    round_trip()
    before = counts()
    for _ in range(3):
        round_trip()
    assert counts() == before


def test_closing_is_idempotent_and_ends_streams_with_a_sentence():
    with hosted() as engine:
        stream = engine.stream(ask(instruction=LONG), engine.encode(CLIP, RATE, "", "en"))
        next(stream)
        pid = engine.pid
        engine.close()
        engine.close()
        assert fault_of(stream).code == "closing" and not is_alive(pid) and engine.health().state == "draining"
        with pytest.raises(NotReady):
            engine.notes(ask())


STUDIO = """
import sys, threading
from tests.engine.contract import ask
from tests.engine.test_hosted import CLIP, LONG, RATE
from webui.engine.hosted import HostedEngine
engine = HostedEngine("wild", {}, program="tests.engine.hosted_child")
engine.start()
prompt = engine.encode(CLIP, RATE, "", "en")
next(engine.stream(ask(instruction="do=bring " + LONG), prompt, 0))
if sys.argv[1:] == ["stuck"]:
    threading.Thread(target=lambda: list(engine.stream(ask(instruction="do=hold"), prompt, 1)), daemon=True).start()
    beats = -1
    while engine._life.beats != beats:
        beats = engine._life.beats
        engine._life.over.wait(1.5)
print(engine.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "killed while the engine is stopped", "killed while the engine is stuck", "ended"])
def test_when_the_studio_is_gone_so_is_the_engine_and_what_it_started(how):
    """Stuck: native code holds the interpreter, so nothing in the engine's process can see that the studio is gone."""
    command = [sys.executable, "-c", STUDIO, *(["stuck"] if "stuck" in how else [])]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as studio:
        pid = int(studio.stdout.readline())
        assert len(group(pid)) == 3, "the engine, what it started, and the shell that waits for its end"
        if "stopped" in how:
            os.kill(pid, signal.SIGSTOP)
        studio.kill() if how.startswith("killed") else studio.stdin.close()
        studio.wait(20)
        until(lambda: not group(pid), 10.0)


def test_the_studio_never_loads_what_the_engine_needs():
    code = "import sys; import webui.app, webui.engine.hosted.engine; print([m for m in ('torch', 'onnxruntime') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip().endswith("[]")
