"""Nothing is left of the engine's process: not when it is closed, not when the studio is killed,
and nothing it needs is in the studio's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.engine.contract import ask
from tests.engine.fake import RATE
from tests.engine.hosted_child import OPEN
from tests.engine.wild import CLIP, LONG, fault_of, group, hosted, is_alive, ready_again, until
from webui.errors import Cancelled, NotReady

STUDIO = """
import sys, threading
from tests.engine.contract import ask
from tests.engine.fake import RATE
from tests.engine.wild import CLIP, LONG
from webui.engine.remote import RemoteEngine
engine = RemoteEngine("wild", {}, program="tests.engine.hosted_child")
engine.start()
prompt = engine.encode(CLIP, RATE, "", "en")
next(engine.stream(ask(instruction="do=bring " + LONG), prompt, 0))
if sys.argv[1:] == ["stuck"]:
    speak = lambda: list(engine.stream(ask(instruction="do=hold"), prompt, 1))  # noqa: E731
    threading.Thread(target=speak, daemon=True).start()
    beats = -1
    while engine._life.beats != beats:
        beats = engine._life.beats
        engine._life.over.wait(1.5)
print(engine.pid, flush=True)
sys.stdin.read()
"""


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
        assert (
            fault_of(stream).code == "closing"
            and not is_alive(pid)
            and engine.health().state == "draining"
        )
        with pytest.raises(NotReady):
            engine.notes(ask())


@pytest.mark.parametrize(
    "how",
    ["killed", "killed while the engine is stopped", "killed while the engine is stuck", "ended"],
)
def test_when_the_studio_is_gone_so_is_the_engine_and_what_it_started(how):
    """Stuck: native code holds the interpreter, so nothing in the engine's process can see that the
    studio is gone.
    """
    command = [sys.executable, "-c", STUDIO, *(["stuck"] if "stuck" in how else [])]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as studio:
        pid = int(studio.stdout.readline())
        assert len(group(pid)) == 3, (
            "the engine, what it started, and the shell that waits for its end"
        )
        if "stopped" in how:
            os.kill(pid, signal.SIGSTOP)
        studio.kill() if how.startswith("killed") else studio.stdin.close()
        studio.wait(20)
        until(lambda: not group(pid), 10.0)


def test_the_studio_never_loads_what_the_engine_needs():
    code = (
        "import sys; import webui.app, webui.engine.remote.engine; print([m for m in ('torch',"
        " 'onnxruntime') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        )
        .stdout.strip()
        .endswith("[]")
    )


class Overtaken:
    """A life whose next question is overtaken by the end of its stream, as when another thread
    closes it.
    """

    def __init__(self, life, stream):
        self._life, self._stream = life, stream

    def __getattr__(self, name):
        return getattr(self._life, name)

    def ask(self, *question):
        self._stream.close()
        return self._life.ask(*question)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_question_that_comes_after_the_end_of_its_stream_harms_nobody(is_first):
    with hosted() as engine:
        prompt, pid = engine.encode(CLIP, RATE, "", "en"), engine.pid
        beside = engine.stream(ask(id="beside", instruction=LONG), prompt, 1)
        next(beside)
        stream = engine.stream(ask(instruction=LONG), prompt)
        if not is_first:
            next(stream)
        stream._life = Overtaken(stream._life, stream)
        if is_first:
            next(stream)
        else:
            with pytest.raises(Cancelled):
                next(stream)
        assert next(stream, None) is None
        assert next(beside) and engine.pid == pid and engine.restarts == 0
        until(lambda: engine.notes(ask(instruction=OPEN)) == [("1", "")])
