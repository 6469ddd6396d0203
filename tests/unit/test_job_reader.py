"""One iterator between a job and whoever takes its sound: what it yields, and how fast."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from webui.errors import Cancelled, EngineFault, KaikouError, LoginNeeded
from webui.messages import Message
from webui.studio import job_reader
from webui.studio.job_reader import (
    JobReader,
    JobStart,
    Pacing,
    QueuePosition,
    SampleRange,
    SentenceStart,
    collect,
)
from webui.studio.speech_job import UNLIMITED, Snapshot, SpeechJob
from webui.types import Chunk, SpeechRequest, Voice

RATE = 1000
VOICE = Voice("v", "Name", "en", "", "fp", 4, 0)
REQUEST = SpeechRequest("take-1", "hello", "v", seed=1)


class Runner:
    """The job runner's side of a reader; `on_credit` is an engine that makes what it is asked."""

    def __init__(self, on_credit=lambda job: None):
        self.admission = SimpleNamespace(eta_s=lambda position: 2.4 * position)
        self.ends, self._on_credit = [], on_credit

    def credit(self, job, upto):
        if job.grant(upto):
            self._on_credit(job)

    def cancel(self, job):
        self.ends.append("cancel")

    def reader_done(self, job):
        self.ends.append("done")


def running(n_samples: int = 0, state: str = "running") -> SpeechJob:
    job = SpeechJob("take-1", REQUEST, "local/x", VOICE, RATE, "e", "1")
    job.move("running")
    if n_samples:
        make(job, n_samples)
    job.move(state)
    return job


def make(job: SpeechJob, n_samples: int, segment: int = 0) -> None:
    job.accept(Chunk(0, np.full(n_samples, 0.1, np.float32), 0, segment, False, {}), 0.1)


def finish(job: SpeechJob) -> None:
    job.move("saving")
    job.saved(None)


def read(job: SpeechJob, pacing: Pacing, on_event=lambda event: None, runner=None) -> list:
    """All events of the job; `on_event` may make more of it. Fails when nothing comes for 10 s."""

    async def take() -> list:
        events = []
        studio = SimpleNamespace(job_runner=runner or Runner())
        async with asyncio.timeout(10), JobReader(studio, job, pacing) as reader:
            async for event in reader:
                events.append(event)
                on_event(event)
        return events

    return asyncio.run(take())


def pieces(events: list) -> list[int]:
    ranges = [e for e in events if isinstance(e, SampleRange)]
    assert [r.start for r in ranges] == [0, *[r.stop for r in ranges[:-1]]], "a hole"
    return [r.stop - r.start for r in ranges]


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The reader's clock moves by step_s whenever it is read; jobs and waits keep the real one."""
    clock_state = SimpleNamespace(now_s=1000.0, step_s=0.0)

    def monotonic() -> float:
        clock_state.now_s += clock_state.step_s
        return clock_state.now_s

    monkeypatch.setattr(job_reader, "time", SimpleNamespace(monotonic=monotonic))
    return clock_state


def test_what_happens_to_a_job_is_told_in_order_and_once():
    job = SpeechJob("take-1", REQUEST, "local/x", VOICE, RATE, "e", "1")
    job.move("waiting", 2)

    def go_on(event):
        match event:
            case QueuePosition(2):
                job.move("waiting", 1)
            case QueuePosition(1):
                job.move("running")
            case JobStart():
                make(job, 100)
            case SampleRange(_, 100):
                make(job, 50, segment=1)
                job.move("saving")
            case SampleRange(_, 150):
                job.saved(None)

    *events, end = read(job, Pacing(UNLIMITED), go_on)
    rtf = job.snapshot().rtf
    assert events == [
        QueuePosition(2, 5),
        QueuePosition(1, 2),
        JobStart(),
        SentenceStart(0, 0, pytest.approx(1.0)),
        SampleRange(0, 100, False),
        SentenceStart(1, 100, rtf),
        SampleRange(100, 150, True),
    ]
    assert isinstance(end, Snapshot) and (end.state, end.saved, end.n_samples) == (
        "done",
        True,
        150,
    )


def test_pieces_grow_and_nothing_goes_beyond_the_credit():
    job, pacing = running(1000, "done"), Pacing(90, piece_s=(0.04, 0.08, 0.2))
    events = []

    async def take():
        studio = SimpleNamespace(job_runner=Runner())
        async with asyncio.timeout(10), JobReader(studio, job, pacing) as reader:
            async for event in reader:
                events.append(event)
                if pacing.is_held_back and pacing.credit < 1000:
                    assert job.credit == pacing.credit == pacing.n_sent, "the engine waits too"
                    pacing.raise_credit(1000)
                    pacing.raise_credit(95)  # one that came late takes nothing back
                    asyncio.get_running_loop().call_soon(reader.poke)

    asyncio.run(take())
    assert pieces(events) == [40, 50, 200, 200, 200, 200, 110]


def test_the_engine_may_go_on_while_a_piece_is_still_being_sent():
    """The listener's credit goes to the engine at once, not when the socket has taken a piece."""

    async def take():
        job, pacing = running(100), Pacing(100)
        async with JobReader(SimpleNamespace(job_runner=Runner()), job, pacing) as reader:
            async for event in reader:
                if isinstance(event, SampleRange):
                    pacing.raise_credit(500)
                    reader.poke()
                    assert job.credit == 500
                    return

    asyncio.run(take())


def test_without_credit_the_clock_paces_it_in_pieces_that_are_not_too_short(clock):
    clock.step_s = 0.006
    sizes = pieces(read(running(500, "done"), Pacing(lead_s=0.3, min_piece_s=0.02)))
    assert 300 <= sizes[0] < 320, "as far as the lead at once"
    assert all(n >= 20 for n in sizes[:-1]) and len(sizes) > 3 and sum(sizes) == 500


def test_an_engine_that_stops_exactly_at_the_limit_is_asked_for_more_as_the_clock_moves(clock):
    def make_all(job):
        make(job, job.credit - job.produced)
        if job.produced > 400:
            finish(job)

    def move_clock(event):
        if isinstance(event, SampleRange):
            asyncio.get_running_loop().call_later(0.02, setattr, clock, "now_s", clock.now_s + 0.1)

    events = read(
        running(), Pacing(lead_s=0.3, min_piece_s=0.01), move_clock, runner=Runner(make_all)
    )
    assert pieces(events) == [300, 100, 100]


def test_an_error_waits_for_what_may_still_be_sent():
    job, received = running(300), []
    job.fail(EngineFault())
    with pytest.raises(EngineFault):
        read(job, Pacing(UNLIMITED, piece_s=(0.1,)), received.append)
    assert pieces(received) == [100, 100, 100]
    with pytest.raises(EngineFault):
        read(job, pacing := Pacing(120))
    assert pacing.n_sent == 120


def test_who_gives_no_credit_is_not_waited_for_and_who_gives_some_is(clock):
    clock.step_s = 0.01
    pacing = Pacing(100, patience_s=0.1, moved_s=clock.now_s)

    def give_once(event):
        clock.now_s += 0.09
        if pacing.n_sent == 100:
            pacing.raise_credit(200)

    with pytest.raises(KaikouError) as raised:
        read(running(300), pacing, give_once)
    assert raised.value.code == "idle" and pacing.n_sent == 200


def test_a_listener_who_has_no_right_any_more_is_sent_nothing_more():
    job, pacing, received = running(300), Pacing(UNLIMITED, piece_s=(0.1,)), []

    def end_right(event):
        received.append(event)
        if isinstance(event, SampleRange):
            pacing.error = LoginNeeded(Message("Please log in again.", "请重新登录。"))

    with pytest.raises(LoginNeeded):
        read(job, pacing, end_right)
    assert pieces(received) == [100]


def test_a_reader_that_leaves_cancels():
    runner, job = Runner(), running(100)

    def leave(event):
        raise Cancelled()

    with pytest.raises(Cancelled):
        read(job, Pacing(UNLIMITED), leave, runner)
    assert runner.ends == ["cancel", "done"]


@pytest.mark.parametrize(("until_saved", "state"), [(False, "saving"), (True, "done")])
def test_a_whole_file_is_collected_without_being_sent(until_saved, state):
    job = running(120, state)
    studio = SimpleNamespace(job_runner=Runner())
    assert asyncio.run(collect(studio, job, until_saved)) == job.pcm(0, 120)
    assert "sent_ms" not in job.trace.to_dict() and job.credit == UNLIMITED


def test_a_take_that_could_not_be_saved_is_an_error_to_who_waits_for_it():
    job = running(120, "saving")
    job.saved(EngineFault())
    with pytest.raises(EngineFault):
        asyncio.run(collect(SimpleNamespace(job_runner=Runner()), job, until_saved=True))
