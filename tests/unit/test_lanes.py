"""Lanes and admission: order of service, fairness, credit, cancel; with a hand-cranked engine
instead of a clock.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from webui.errors import Busy, Cancelled
from webui.studio.admission import Admission, Bucket, Buckets
from webui.studio.scheduler import Scheduler
from webui.studio.scheduler_pool import SchedulerPool
from webui.studio.speech_job import UNLIMITED, SpeechJob
from webui.types import Chunk, SpeechRequest, Voice

VOICE = Voice("v", "v", "en", "", "fp", 4, 0)


class Cranked:
    """One lane; every step is written down and, while `gate` is closed, waits."""

    def __init__(self, chunks: int = 3, seconds: float = 0.5):
        self.steps, self.gate, self.chunks, self.seconds = [], threading.Event(), chunks, seconds
        self.gate.set()

    def describe(self):
        return SimpleNamespace(lanes=1, rtf=0.01, speed=0.0, streams=0)

    def stream(self, request, prompt, lane):
        for n in range(self.chunks):
            self.gate.wait(10)
            self.steps.append(request.id)
            yield Chunk(
                n, np.full(int(24000 * self.seconds), 0.1, np.float32), 0, 0, n == self.chunks - 1
            )

    def cancel(self, request_id):
        pass


def job(name: str, credit: int = 1 << 40, priority: int = 0, owner: str = "local/x") -> SpeechJob:
    new_job = SpeechJob(
        name,
        SpeechRequest(name, "hello", "v", seed=1, priority=priority),
        owner,
        VOICE,
        24000,
        "e",
        "1",
    )
    new_job.credit = credit
    return new_job


def run(engine, jobs):
    ended, done = [], threading.Event()
    lanes = Scheduler(engine, 20)

    def end(j):
        ended.append(j.id)
        if len(ended) == len(jobs):
            done.set()

    for j in jobs:
        j.move("running")
        lanes.add(j, None, end)
    return lanes, ended, done


def test_first_chunks_come_before_second_ones_and_then_the_driest_first():
    engine = Cranked()
    engine.gate.clear()
    lanes, _, done = run(engine, [job("a"), job("b"), job("c")])
    engine.gate.set()
    assert done.wait(10)
    assert sorted(engine.steps[:3]) == ["a", "b", "c"] and engine.steps[3:] == engine.steps[:3] * 2
    lanes.close()


def test_a_listener_who_has_fallen_silent_goes_before_a_newcomer_and_narrows_the_door():
    engine = Cranked(chunks=2)
    engine.gate.clear()
    silent, new = job("silent"), job("new")
    silent.first_chunk_s, silent.dry_s = 1.0, 1.0
    lanes, _, done = run(engine, [new, silent])
    engine.gate.set()
    assert done.wait(10)
    assert engine.steps.index("silent") <= 1 and engine.steps[-1] == "new"
    assert lanes.load_factor < 1.0
    lanes.close()


def test_a_listener_who_paused_is_not_late_when_it_goes_on():
    paused = job("paused", credit=100)
    paused.accept(Chunk(0, np.full(24000, 0.1, np.float32), 0, 0, False), 0.01)
    paused.dry_s -= 100
    before = time.monotonic()
    assert not paused.wants_audio and paused.grant(48000) and paused.wants_audio
    assert paused.due_s() > before + 0.5
    assert not paused.grant(48000)


def test_background_work_waits_for_listeners():
    engine = Cranked()
    engine.gate.clear()
    lanes, ended, done = run(engine, [job("first"), job("batch", priority=5), job("now")])
    engine.gate.set()
    assert done.wait(10)
    assert ended[-1] == "batch" and engine.steps[-3:] == ["batch"] * 3
    lanes.close()


def test_an_engine_with_long_steps_in_the_background_is_told_when_a_listener_waits():
    engine, calls = Cranked(), []
    engine.make_way = calls.append
    engine.gate.clear()
    lanes, _, done = run(engine, [job("batch", priority=5)])
    end = lambda j: None  # noqa: E731
    while not any(s.step_since_s for s in lanes._slots):
        time.sleep(0.005)
    lanes.add(job("more", priority=5), None, end)
    assert calls == [], "background work waits for its turn"
    sated = job("sated", credit=0)
    lanes.add(sated, None, end)
    assert calls == [], "nobody is in want of sound"
    sated.credit = 20000
    lanes.poke()
    assert calls == [0]
    lanes.add(job("now"), None, end)
    assert calls == [0, 0]
    engine.gate.set()
    assert done.wait(10)
    lanes.close()


def test_without_credit_nothing_is_computed():
    engine, j = Cranked(chunks=100), job("a", credit=20000)
    lanes, _, _ = run(engine, [j])
    deadline = time.monotonic() + 5
    while j.wants_audio and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(engine.steps) == 2 and not j.wants_audio, (
        "one step covers part of the credit, the second the rest"
    )
    j.credit = 30000
    lanes.poke()
    while j.wants_audio and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(engine.steps) == 3
    j.is_cancelled = True
    lanes.poke()
    while lanes.n_open and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (
        lanes.n_open == 0 and isinstance(j.snapshot().error, Cancelled) and len(engine.steps) == 3
    )
    lanes.close()


def test_an_engine_bug_fails_its_job_only():
    engine = Cranked()
    good = engine.stream
    engine.stream = lambda request, prompt, lane: (
        iter([1]) if request.id == "bad" else good(request, prompt, lane)
    )
    bad, fine = job("bad"), job("fine")
    lanes, _, done = run(engine, [bad, fine])
    assert done.wait(10)
    assert (
        bad.snapshot().state == "failed"
        and bad.snapshot().error.code == "fault"
        and fine.snapshot().state == "saving"
    )
    lanes.close()


def test_admission_places_refusals_and_leaving():
    hungry, started = [0], []
    gate = Admission(lambda: 1, lambda: hungry[0], max_waiting=2, max_each=10)

    def begin(j):
        started.append(j.id)
        hungry[0] += 1

    a, b, c, d = (job(n) for n in "abcd")
    for j in (a, b, c):
        gate.enter(j, begin)
    assert started == ["a"] and (b.snapshot().position, c.snapshot().position) == (1, 2)
    with pytest.raises(Busy) as full:
        gate.enter(d, begin)
    assert full.value.retry_after_s >= 1 and gate.refused == 1
    assert gate.leave(b) and not gate.leave(b) and c.snapshot().position == 1
    hungry[0] -= 1
    gate.finish(a)
    assert started == ["a", "c"]


def test_a_visitor_with_three_streams_does_not_starve_another():
    hungry, started = [0], []
    gate = Admission(lambda: 1, lambda: hungry[0], max_waiting=9, max_each=9)

    def begin(j):
        started.append(j.id)
        hungry[0] += 1

    jobs = {n: job(n, owner=n[0]) for n in ("a1", "a2", "a3", "b1", "b2", "c1")}
    for j in jobs.values():
        gate.enter(j, begin)
    places = {n: j.snapshot().position for n, j in jobs.items()}
    assert places == {"a1": 0, "b1": 1, "c1": 2, "a2": 3, "b2": 4, "a3": 5}
    for _ in range(5):
        hungry[0] -= 1
        gate.finish(jobs[started[-1]])
    assert started == ["a1", "b1", "c1", "a2", "b2", "a3"]


class Together:
    """Four lanes on one device: every step waits until all streams have come to it."""

    def __init__(self, streams: int):
        self.gate, self.lanes = threading.Barrier(streams, timeout=10), []

    def describe(self):
        return SimpleNamespace(lanes=4, rtf=0.9, speed=1.1, streams=0)

    def stream(self, request, prompt, lane):
        self.lanes.append(lane)
        for n in range(3):
            self.gate.wait()
            yield Chunk(n, np.full(24000, 0.1, np.float32), 0, 0, n == 2)

    def cancel(self, request_id):
        pass


def test_streams_that_wait_for_one_device_have_lanes_of_their_own():
    engine = Together(4)
    lanes, _, done = run(engine, [job(n) for n in "abcd"])
    assert done.wait(10) and sorted(engine.lanes) == [0, 1, 2, 3]
    assert lanes.capacity == 1, "0.7 of 1.1 streams: one is let in"
    lanes.speed = 20.0
    assert lanes.capacity == int(0.7 * 20 * lanes.load_factor) and lanes.expected_rtf == 0.9
    lanes.close()


def test_one_visitor_cannot_take_every_place():
    gate = Admission(lambda: 100, lambda: 0, max_waiting=2, max_each=2)
    for n in "ab":
        gate.enter(job(n), lambda j: None)
    with pytest.raises(Busy):
        gate.enter(job("c"), lambda j: None)


def test_token_bucket_counts_time_not_tries():
    now = [0.0]
    bucket = Bucket(60, clock=lambda: now[0])
    assert [bucket.take() for _ in range(20)] == [0.0] * 20
    assert bucket.take() == pytest.approx(1.0)
    now[0] = 1.0
    assert bucket.take() == 0.0
    buckets = Buckets(3, max_keys=2)
    buckets.check("a")
    with pytest.raises(Busy) as slow:
        buckets.check("a")
    assert slow.value.retry_after_s == 20
    buckets.check("b"), buckets.check("c")
    buckets.check("a")  # forgotten: the table is bounded


def test_on_a_shared_device_background_work_stands_still_while_somebody_listens():
    engine = Cranked(chunks=4)
    engine.describe = lambda: SimpleNamespace(lanes=2, rtf=0.1, speed=20.0, streams=0)
    engine.gate.clear()
    lanes, _, done = run(engine, [job("now"), job("batch", priority=5)])
    assert lanes.n_wanting_audio == 1
    engine.gate.set()
    assert done.wait(10) and engine.steps == ["now"] * 4 + ["batch"] * 4
    lanes.close()


@pytest.mark.parametrize(
    ("credit", "priority"), [(UNLIMITED, 0), (1 << 40, 5)], ids=["takes the whole", "background"]
)
def test_who_does_not_play_is_never_late(credit, priority):
    engine = Cranked(chunks=3)
    slow = job("slow", credit, priority)
    slow.first_chunk_s, slow.dry_s = 1.0, 1.0
    lanes, _, done = run(engine, [slow])
    assert done.wait(10) and lanes.load_factor == 1.0
    lanes.close()


def test_the_watch_wakes_for_streams_and_not_for_steps():
    engine, waits = Cranked(chunks=40), []
    lanes = Scheduler(engine, 20)
    wait = lanes._watched.wait
    lanes._watched.wait = lambda timeout=None: waits.append(timeout) or wait(timeout)
    done = threading.Event()
    j = job("a")
    j.move("running")
    lanes.add(j, None, lambda job: done.set())
    assert done.wait(10) and len(engine.steps) == 40 and len(waits) <= 2
    lanes.close()


def test_a_lane_without_a_stream_is_not_woken_for_those_of_others(monkeypatch):
    class ManyLanes(Cranked):
        def describe(self):
            return SimpleNamespace(lanes=16, rtf=0.01, speed=0.0, streams=0)

    looks = Counter()  # of a lane's thread, for something to step
    pick = Scheduler._pick
    monkeypatch.setattr(
        Scheduler, "_pick", lambda self, lane: looks.update([lane]) or pick(self, lane)
    )
    engine = ManyLanes(chunks=40)
    lanes, _, done = run(engine, [job("a")])
    assert done.wait(10) and len(engine.steps) == 40
    assert sum(looks.values()) <= 16 + 1 + 2 * 40
    lanes.close()


class Placed:
    """Four lanes on one device with places for two streams; `most` were open at once."""

    def __init__(self):
        self.open, self.most, self.began, self.change = 0, 0, [], threading.Condition()

    def describe(self):
        return SimpleNamespace(lanes=4, rtf=0.1, speed=20.0, streams=2)

    def stream(self, request, prompt, lane):
        with self.change:
            self.open, self.began = self.open + 1, [*self.began, request.id]
            self.most = max(self.most, self.open)
            self.change.notify_all()
        try:
            for n in range(3):
                yield Chunk(n, np.full(24000, 0.1, np.float32), 0, 0, n == 2)
        finally:
            with self.change:
                self.open -= 1
                self.change.notify_all()

    def until_begun(self, *names):
        with self.change:
            assert self.change.wait_for(lambda: set(names) <= set(self.began), 10)

    def cancel(self, request_id):
        pass


def test_no_stream_is_begun_that_the_engine_has_no_place_for():
    """Whoever has paused keeps its place: the engine remembers it."""
    engine = Placed()
    paused = [job(n, credit=1) for n in "ab"]
    lanes, _, _ = run(engine, paused)
    engine.until_begun("a", "b")
    third = job("c")
    lanes.add(third, None, lambda j: None)
    assert lanes.capacity == lanes.n_wanting_audio and lanes.n_free == 0, (
        "nobody is let in at the door"
    )
    for j in paused:
        j.grant(48000)
    lanes.poke()
    with engine.change:
        assert engine.change.wait_for(lambda: all(j.produced >= 48000 for j in paused), 10)
    assert engine.began == ["a", "b"] and third.snapshot().n_samples == 0
    paused[0].is_cancelled = True
    lanes.poke()
    engine.until_begun("c")
    assert engine.most == 2
    lanes.close()


def test_one_place_is_never_for_work_in_the_background():
    engine = Placed()
    quiet = [job(n, credit=1, priority=5) for n in "abc"]
    lanes, _, _ = run(engine, quiet)
    with engine.change:
        assert engine.change.wait_for(lambda: engine.began, 10)
    assert lanes.n_free == 1
    lanes.add(job("now", credit=1), None, lambda j: None)
    engine.until_begun("now")
    assert len(engine.began) == 2 and engine.most == 2
    lanes.close()


def test_the_line_moves_when_a_place_is_given_back_and_no_faster():
    """Admission asks the hall, which asks the lanes of the engine in charge; a bound that was set
    is no way around it.
    """
    for bound in (0, 50):
        engine, pool = Placed(), SchedulerPool(20, bound)
        pool.add_job(engine)
        gate = Admission(pool.capacity, pool.n_wanting_audio, max_waiting=8, max_each=9)
        jobs = [job(n, credit=1) for n in "abc"]

        def begin(j, pool=pool, engine=engine):
            j.move("running")
            pool.of(engine).add(j, None, gate.finish)  # noqa: B023

        for j in jobs:
            gate.enter(j, begin)
        engine.until_begun("a", "b")
        assert gate.n_waiting == 1 and jobs[2].snapshot().state == "waiting"
        gate.next()
        assert gate.n_waiting == 1
        jobs[0].is_cancelled = True
        pool.poke()
        engine.until_begun("c")
        assert gate.n_waiting == 0 and engine.most == 2
        pool.close()


def test_a_slower_voice_of_an_engine_takes_more_of_its_room_and_leaves_its_measure_alone():
    engine = Cranked()
    engine.describe = lambda: SimpleNamespace(lanes=2, rtf=0.02, speed=0.0, streams=0)
    engine.gate.clear()
    lanes, ended = Scheduler(engine, 20), threading.Semaphore(0)
    assert lanes.capacity == 70
    room = []
    for speech_job in map(job, "abc"):
        speech_job.own_rtf = 0.5
        speech_job.move("running")
        lanes.add(speech_job, None, lambda j: ended.release())
        room.append(lanes.capacity)
    assert room[0] in (45, 46) and room[1] in (21, 22) and room[2] <= lanes.n_wanting_audio, (
        "a fourth waits"
    )
    engine.gate.set()
    assert all(ended.acquire(timeout=10) for _ in range(3))
    assert lanes.rtf == 0.02
    lanes.close()
