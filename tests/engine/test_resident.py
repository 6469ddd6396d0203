"""The resident engine: ready only after its warm-up, replaced without dropping a stream, honest
when it cannot start.
"""

from __future__ import annotations

import threading

import pytest

from tests.engine.contract import ask, whole
from tests.engine.fake import RATE, FakeEngine
from webui.engine.manager import EngineManager
from webui.errors import NotReady
from webui.messages import Message


def started(resident, engine):
    resident.start(lambda: engine).join(10)
    return engine


def test_it_is_starting_until_the_warm_up_has_been_spoken():
    resident, engine, gate = EngineManager(), FakeEngine(), threading.Event()
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
    resident = EngineManager(took_over.append)
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
    states = []
    resident = EngineManager(
        lambda engine: states.append((resident.health().state, resident.next_health() is not None))
    )
    started(resident, FakeEngine())
    started(resident, FakeEngine(version="2"))
    assert states == [("ready", True), ("ready", True)] and resident.lease().engine.version == "2"
    resident.close()


def test_a_failing_newcomer_leaves_the_old_one_in_charge():
    resident = EngineManager()
    old = started(resident, FakeEngine())
    bad = FakeEngine()
    bad.start = lambda: 1 / 0
    started(resident, bad)
    assert (
        resident.lease().engine is old
        and resident.health().state == "ready"
        and resident.failure().code == "broken"
        and bad.state == "broken"
    )
    resident.close()


def test_an_engine_that_never_starts_says_why(caplog):
    def refuse():
        raise NotReady(Message("No weights in this folder.", "目录里没有模型。"))

    resident = EngineManager()
    resident.start(refuse).join(10)
    assert (
        resident.health().state == "broken"
        and resident.health().reason == "No weights in this folder."
    )
    with pytest.raises(NotReady, match="No weights"):
        resident.lease()
    assert (
        "No weights in this folder" in caplog.text
    )  # who runs the studio without a page learns it too


def whole_tone():
    import numpy as np

    return np.full(RATE * 2, 0.1, np.float32)


class Breakable(FakeEngine):
    """As an engine in a process of its own: it may break for good."""

    kind = "big"

    def __init__(self, **more):
        super().__init__(**more)
        self.on_broken = lambda error: None

    def break_down(self):
        self.state = "broken"
        self.on_broken(NotReady(Message("It failed four times.", "失败了四次。"), code="broken"))


def settled(resident, is_so) -> bool:
    tick = threading.Event()
    for _ in range(1000):
        if is_so():
            return True
        tick.wait(0.01)
    return False


def start_two_engines(took_over=None):
    """A resident whose second engine replaced the first, and all engines that were made."""
    engines = []

    def maker(kind, **more):
        def make():
            engines.append(kind(**more))
            return engines[-1]

        return make

    resident = EngineManager(took_over.append if took_over is not None else lambda engine: None)
    resident.start(maker(FakeEngine, version="small"), maker(Breakable, version="big")).join(10)
    return resident, engines


def test_when_the_engine_breaks_for_good_the_one_before_it_steps_in_and_it_may_be_tried_again():
    reported_engines = []
    resident, engines = start_two_engines(reported_engines)
    small, big = engines
    assert resident.absent("big") is None and not resident.can_try_again() and not resident.again()
    lease = resident.lease()
    big.break_down()
    assert settled(resident, lambda: resident.health().state == "ready")
    stand_in = resident.lease().engine
    assert (
        stand_in is engines[2]
        and stand_in is not small
        and stand_in.version == "small"
        and reported_engines == [small, big, stand_in]
    )
    assert resident.failure().code == "broken" and resident.can_try_again()
    assert resident.absent("big").en == resident.failure().en and resident.absent("bigger") is None
    lease.release()
    assert big.state == "broken" and stand_in.state == "ready"
    assert resident.again() and settled(
        resident, lambda: resident.lease().engine is engines[-1] and len(engines) == 4
    )
    assert (
        resident.lease().engine.version == "big"
        and resident.failure() is None
        and not resident.can_try_again()
    )
    engines[3].break_down()
    assert (
        settled(resident, lambda: resident.health().state == "ready")
        and resident.lease().engine.version == "small"
    ), "and once more"
    resident.close()


def test_while_another_steps_in_requests_are_asked_to_come_again():
    resident, engines = start_two_engines()
    gate, start = threading.Event(), FakeEngine.start
    try:
        FakeEngine.start = lambda self: (gate.wait(10), start(self))[1]
        engines[1].break_down()
        assert settled(resident, lambda: len(engines) == 3) and resident.next_health() is None, (
            "that is for the one people wait for"
        )
        with pytest.raises(NotReady) as refused:
            resident.lease()
        assert (
            refused.value.retry_after_s == 2
            and "换用内置音色" in refused.value.zh
            and resident.health().state == "broken"
        )
        assert not resident.again(), "one comes already"
    finally:
        gate.set()
        FakeEngine.start = start
    assert settled(resident, lambda: resident.health().state == "ready")
    assert resident.failure().en == "It failed four times."
    resident.close()


def test_a_stand_in_that_cannot_start_leaves_the_reason_of_the_broken_one():
    resident, engines = start_two_engines()
    big, start = engines[1], FakeEngine.start

    def fails(self):
        raise NotReady(Message("No voice here.", "没有声音。"))

    try:
        FakeEngine.start = fails
        big.break_down()
        assert settled(resident, lambda: len(engines) == 3 and resident.can_try_again())
    finally:
        FakeEngine.start = start
    assert settled(resident, resident.can_try_again)
    assert resident.failure().en == "It failed four times." and resident.lease().engine is big
    assert (
        resident.again()
        and settled(resident, lambda: resident.health().state == "ready")
        and resident.lease().engine is engines[-1]
    )
    engines[-1].break_down()
    assert (
        settled(resident, lambda: resident.health().state == "ready")
        and resident.lease().engine.version == "small"
    ), "it is known still who steps in"
    resident.close()


def test_an_engine_alone_says_why_it_broke_and_may_be_tried_again():
    engines, resident = [], EngineManager()
    resident.start(lambda: engines.append(Breakable()) or engines[-1]).join(10)
    engines[0].break_down()
    assert (
        resident.health().state == "broken"
        and resident.can_try_again()
        and resident.next_health() is None
    )
    assert resident.absent("big").en == "It failed four times."
    assert resident.again() and settled(
        resident, lambda: len(engines) == 2 and resident.health().state == "ready"
    )
    resident.close()


def test_an_engine_that_could_not_start_may_be_tried_again():
    resident, tries = EngineManager(), []

    class Late(Breakable):
        def start(self):
            tries.append(1)
            if len(tries) == 1:
                raise NotReady(Message("No weights.", "没有权重。"), code="model_file")
            super().start()

    started(resident, FakeEngine(version="small"))
    resident.start(Late).join(10)
    assert (
        resident.failure().code == "model_file"
        and resident.absent("big").code == "model_file"
        and resident.lease().engine.version == "small"
    )
    assert resident.again() and settled(
        resident, lambda: resident.lease().engine.version != "small"
    )
    assert resident.failure() is None
    resident.close()


def test_an_engine_that_nobody_could_take_over_is_closed_and_another_may_come():
    def take(engine):
        if engine.version == "bad":
            raise ZeroDivisionError("by nothing")

    resident, old = EngineManager(take), FakeEngine()
    started(resident, old)
    bad, good = FakeEngine(version="bad"), FakeEngine(version="good")
    assert resident.replace(lambda: bad)
    assert settled(resident, lambda: resident.failure() is not None and bad.state == "broken")
    assert resident.lease().engine is old and resident.next_health() is None
    assert settled(resident, lambda: resident.replace(lambda: good)), "nothing is on its way"
    assert settled(resident, lambda: resident.lease().engine is good)
    resident.close()


def test_a_stand_in_that_nobody_could_take_over_does_not_close_the_door_for_ever():
    resident, (_, big) = start_two_engines()
    resident._on_ready = lambda engine: 1 / 0
    big.break_down()
    assert settled(resident, resident.can_try_again)
    assert settled(resident, lambda: resident.lease().engine is big)
    assert resident.failure().en == "It failed four times."
    resident.close()


@pytest.mark.parametrize("failing", ["old", "newcomer"])
def test_an_engine_that_cannot_be_closed_holds_up_nobody(failing):
    resident, versions = EngineManager(), []

    class Clinging(FakeEngine):
        def start(self):
            super().start()
            if self.version == "newcomer":
                raise NotReady(Message("No weights.", "没有权重。"))

        def close(self):
            super().close()
            versions.append(self.version)
            if self.version == failing:
                raise OSError("it does not let go")

    started(resident, Clinging(version="old"))
    resident.start(lambda: Clinging(version="newcomer"), lambda: Clinging(version="third")).join(10)
    assert resident.lease().engine.version == "third" and versions == ["newcomer", "old"]
    assert resident.replace(lambda: FakeEngine(version="fourth"))
    assert settled(resident, lambda: resident.lease().engine.version == "fourth")
    resident.close()


def test_whoever_watches_is_told_of_a_takeover_and_of_an_engine_that_restarts():
    states = []
    resident = EngineManager(
        on_change=lambda: states.append((resident.health().state, resident.is_restarting()))
    )
    engine = FakeEngine()
    engine.on_change = lambda: None
    resident.start(lambda: engine).join()
    assert states[-1] == ("ready", False)
    engine.state = "starting"
    engine.on_change()
    assert states[-1] == ("starting", True) and not resident.is_handing_over()
    engine.state = "ready"
    engine.on_change()
    assert states[-1] == ("ready", False)
    resident.close()
