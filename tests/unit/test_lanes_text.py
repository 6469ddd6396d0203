"""Lanes and texts that are still being written: whoever waits for a writer holds nobody up, is not
late and is not stalled; an engine that hangs is.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit.test_lanes import Cranked, job
from webui.errors import Cancelled, EngineStalled
from webui.studio.scheduler import Scheduler
from webui.studio.text_source import TextSource
from webui.types import Chunk


class Reading(Cranked):
    """A chunk for each piece that it reads; `hangs`: at a piece of that name it stands still."""

    def __init__(self, reads: bool, hangs: str = ""):
        super().__init__(chunks=1)
        self.reads, self.hangs, self.hung, self.closed = (
            reads,
            hangs,
            threading.Event(),
            threading.Event(),
        )

    def describe(self):
        return SimpleNamespace(lanes=1, rtf=0.01, speed=0.0, streams=0, text_in=self.reads)

    def stream_text(self, request, prompt, pieces):
        n = -1
        try:
            for n, piece in enumerate(pieces):
                if piece.strip() == self.hangs:
                    self.hung.wait(30)
                self.steps.append(f"{request.id}:{piece}")
                yield Chunk(n, np.full(2400, 0.1, np.float32), 2400 * n, 0, False)
            yield Chunk(n + 1, np.full(2400, 0.1, np.float32), 2400 * n, 0, True)
        finally:
            self.closed.set()


class Told:
    """Lanes with one text, and what became of it."""

    def __init__(self, engine, stall_s: float = 20.0):
        self.lanes, self.over = Scheduler(engine, stall_s), threading.Event()
        self.text = TextSource(lambda clause, own: [clause], "en", [])
        self.job = job("text")
        self.job.text_source = self.text
        self.text.listen(
            lambda waited: (self.job.text_arrived() if waited else None, self.lanes.poke())
        )
        self.job.move("running")

    def begin(self):
        self.lanes.add(self.job, None, lambda _: self.over.set())
        return self

    def until(self, condition) -> bool:
        pause = threading.Event()
        return any(condition() or pause.wait(0.01) for _ in range(1000))


@pytest.mark.parametrize("reads", [True, False])
def test_who_waits_for_a_writer_holds_nobody_up_and_is_neither_late_nor_stalled(reads):
    session = Told(engine := Reading(reads), stall_s=0.2)
    session.text.push("Hello there, ")
    session.begin()
    assert session.until(lambda: session.job.produced)
    assert not session.over.wait(0.8), "four times as long as an engine may stand still"
    assert not session.job.wants_audio and session.lanes.n_wanting_audio == 0, (
        "it takes nobody's place"
    )
    other, done = job("other"), threading.Event()
    other.move("running")
    session.lanes.add(other, None, lambda _: done.set())
    assert done.wait(5), "the only lane is free"
    session.text.push("and good bye. ")
    session.text.end()
    assert (
        session.over.wait(5)
        and session.job.snapshot().state == "saving"
        and session.job.snapshot().error is None
    )
    assert session.job.underruns == 0 and session.lanes.load_factor == 1.0, (
        "what came late was the text"
    )
    assert len([s for s in engine.steps if s.startswith("text")]) == 2
    session.lanes.close()


def test_an_engine_that_hangs_over_a_text_is_given_up():
    session = Told(engine := Reading(True, hangs="And now it hangs."), stall_s=0.3)
    session.text.push("Hello there, ")
    session.begin()
    assert session.until(lambda: session.job.produced)
    session.text.push("And now it hangs. ")
    assert session.over.wait(10) and isinstance(session.job.snapshot().error, EngineStalled)
    engine.hung.set()
    session.lanes.close()


@pytest.mark.parametrize("reads", [True, False])
def test_a_cancel_ends_it_while_it_waits(reads):
    session = Told(engine := Reading(reads))
    session.text.push("Hello there, ")
    session.begin()
    assert session.until(lambda: session.job.produced and (session.text.is_starved or not reads))
    session.job.is_cancelled = True
    session.text.close()
    session.lanes.poke()
    assert session.over.wait(5) and isinstance(session.job.snapshot().error, Cancelled)
    assert not reads or engine.closed.wait(5)
    assert session.until(lambda: not [t for t in threading.enumerate() if t.name == "lane-text"])
    session.lanes.close()


def test_no_more_is_made_than_the_reader_takes_and_the_end_needs_no_credit():
    session = Told(engine := Reading(False))
    session.job.credit = 24000  # two clauses of half a second
    session.text.push("One two three. Four five six. Seven eight nine. ")
    session.begin()
    assert session.until(lambda: session.job.produced == 24000)
    assert not session.over.wait(0.3) and len(engine.steps) == 2
    session.job.grant(36000)
    session.lanes.poke()
    assert session.until(lambda: session.job.produced == 36000)
    session.text.end()
    assert session.over.wait(5) and session.job.snapshot().state == "saving"
    session.lanes.close()
