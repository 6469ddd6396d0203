"""The resident engine: ready only after its warm-up, replaced without dropping a stream, honest when it cannot start."""

from __future__ import annotations

import threading

import pytest

from tests.engine.contract import ask, whole
from tests.engine.fake import RATE, FakeEngine
from webui.engine.resident import Resident
from webui.errors import NotReady


def started(resident, engine):
    resident.start(lambda: engine).join(10)
    return engine


def test_it_is_starting_until_the_warm_up_has_been_spoken():
    resident, engine, gate = Resident(), FakeEngine(), threading.Event()
    engine.start = lambda: (gate.wait(10), setattr(engine, "state", "ready"))
    thread = resident.start(lambda: engine)
    assert resident.health().state == "starting"
    with pytest.raises(NotReady):
        resident.lease()
    gate.set()
    thread.join(10)
    assert resident.health().state == "ready" and resident.lease().engine is engine
    resident.close()


def test_a_hot_swap_lets_the_running_stream_end_and_then_closes_the_old_engine():
    took_over = []
    resident = Resident(took_over.append)
    old = started(resident, FakeEngine())
    lease = resident.lease()
    prompt = old.encode(whole_tone(), RATE, "", "en")
    stream = lease.engine.stream(ask(), prompt)
    parts = [next(stream)]
    new = started(resident, FakeEngine(version="2"))
    assert resident.lease().engine is new and old.state == "ready"
    parts += list(stream)
    assert len(whole(parts)) == len(whole(FakeEngine().stream(ask(), prompt)))
    lease.release()
    lease.release()
    assert old.state == "broken" and new.state == "ready" and took_over == [old, new]
    resident.close()
    assert new.state == "broken"


def test_whoever_is_told_knows_an_engine_before_it_can_be_leased():
    seen = []
    resident = Resident(lambda engine: seen.append((resident.health().state, resident.coming() is not None)))
    started(resident, FakeEngine())
    started(resident, FakeEngine(version="2"))
    assert seen == [("ready", True), ("ready", True)] and resident.lease().engine.version == "2"
    resident.close()


def test_a_failing_newcomer_leaves_the_old_one_in_charge():
    resident = Resident()
    old = started(resident, FakeEngine())
    bad = FakeEngine()
    bad.start = lambda: 1 / 0
    started(resident, bad)
    assert resident.lease().engine is old and resident.health().state == "ready" and resident.failure().code == "broken" and bad.state == "broken"
    resident.close()


def test_an_engine_that_never_starts_says_why():
    def refuse():
        raise NotReady("No weights in this folder.", "目录里没有模型。")
    resident = Resident()
    resident.start(refuse).join(10)
    assert resident.health().state == "broken" and resident.health().reason == "No weights in this folder."
    with pytest.raises(NotReady, match="No weights"):
        resident.lease()


def whole_tone():
    import numpy as np
    return np.full(RATE * 2, 0.1, np.float32)
