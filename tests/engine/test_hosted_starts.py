"""Starting and restarting the engine's process: how often, how soon, what is said meanwhile and at
the end of patience.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading

import pytest

from tests.engine import wild
from tests.engine.contract import ask
from tests.engine.fake import RATE
from tests.engine.wild import CLIP, QUICK, hosted, is_alive, ready_again, unstarted, until
from webui.engine.remote import RemoteEngine
from webui.errors import NotReady

engine, prompt = wild.engine, wild.prompt


def test_while_it_restarts_requests_are_told_when_to_come_again(prompt):
    with hosted(dataclasses.replace(QUICK, back_off_s=(30.0,))) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        health = until(lambda: engine.health().state == "starting" and engine.health())
        assert "restarted" in health.reason and "重启" in health.reason_zh
        for call in (
            lambda: engine.stream(ask(), prompt),
            lambda: engine.notes(ask()),
            lambda: engine.encode(CLIP, RATE, "", "en"),
            lambda: engine.prepare(prompt),
        ):
            with pytest.raises(NotReady) as refused:
                call()
            assert (
                refused.value.code == "notready"
                and refused.value.retry_after_s >= 1
                and refused.value.zh
            )
        assert engine.describe().name == "fake"


def test_the_fourth_failure_in_the_window_is_the_last():
    with hosted(dataclasses.replace(QUICK, max_restarts=3)) as engine:
        for n in range(3):
            os.kill(engine.pid, signal.SIGKILL)
            ready_again(engine, n + 1)
        os.kill(engine.pid, signal.SIGKILL)
        health = until(lambda: engine.health().state == "broken" and engine.health())
        assert (
            "4 times within 10 min" in health.reason
            and "killed" in health.reason
            and "4 次" in health.reason_zh
        )
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


def test_an_engine_that_cannot_start_says_why_and_is_not_tried_again(tmp_path):
    marks = tmp_path / "starts"
    with unstarted("refuse", marks) as engine:
        with pytest.raises(NotReady) as refused:
            engine.start()
        assert (refused.value.code, refused.value.param, refused.value.en) == (
            "model_file",
            "llm.pt",
            "No weights in this folder.",
        )
        assert (
            engine.health().state == "broken"
            and engine.health().reason == "No weights in this folder."
        )
        until(lambda: engine._life.has_ended())
    assert marks.read_text() == "x"


def test_a_bug_in_starting_is_told_as_one(tmp_path):
    with unstarted("bug", tmp_path / "m") as engine, pytest.raises(NotReady, match="by nothing"):
        engine.start()


def test_killed_while_loading_it_is_tried_again_and_not_for_ever(tmp_path):
    with unstarted("die once", tmp_path / "a") as engine:
        engine.start()
        assert engine.health().state == "ready" and engine.restarts == 1
    with (
        unstarted("die", tmp_path / "b", dataclasses.replace(QUICK, max_restarts=2)) as engine,
        pytest.raises(NotReady, match="3 times"),
    ):
        engine.start()
    assert (tmp_path / "b").read_text() == "xxx"


def test_a_restart_that_cannot_start_is_tried_as_often_as_a_crash(tmp_path):
    with unstarted(
        "die later", tmp_path / "a", dataclasses.replace(QUICK, max_restarts=3)
    ) as engine:
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
    engine = RemoteEngine("os.system", {"command": "true"}, QUICK)
    with pytest.raises(NotReady, match="no engine"):
        engine.start()
    engine.close()


def test_closed_while_it_starts():
    engine, codes = (
        RemoteEngine("wild", {"start_s": 60.0}, QUICK, program="tests.engine.hosted_child"),
        [],
    )

    def start():
        with pytest.raises(NotReady) as error:
            engine.start()
        codes.append(error.value.code)

    thread = threading.Thread(target=start)
    thread.start()
    pid = until(lambda: engine.pid)
    engine.close()
    thread.join(20)
    assert codes == ["closing"] and not is_alive(pid)
