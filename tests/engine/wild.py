"""The engine in a process of its own that tests bring up, harm and wait for, and what can be seen
of processes from outside.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.engine.fake import RATE
from webui.engine.remote import RemoteEngine, Timeouts
from webui.errors import KaikouError

QUICK = Timeouts(
    beat_s=0.1,
    frozen_s=1.0,
    still_s=1.0,
    start_frozen_s=20,
    start_still_s=20,
    back_off_s=(0.0,),
    max_restarts=100,
)
LONG = "seconds=60 chunk=0.2"
PACED = LONG + " rtf=1"
CLIP = np.sin(np.arange(RATE * 4) / 20).astype(np.float32)


@contextmanager
def hosted(patience: Timeouts = QUICK):
    with unstarted("", None, patience) as engine:
        engine.start()
        yield engine


@contextmanager
def unstarted(trouble: str, marks: Path | None, patience: Timeouts = QUICK):
    """trouble: what goes wrong in starting; marks: counts the starts, a letter each."""
    engine = RemoteEngine(
        "wild",
        {"start": trouble, "marks": str(marks or "")},
        patience,
        program="tests.engine.hosted_child",
    )
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def engine():
    with hosted() as engine:
        yield engine


@pytest.fixture
def prompt(engine):
    return engine.encode(CLIP, RATE, "", "en")


def until(condition, limit_s: float = 20.0):
    """Waits for something that is bound to come; the limit is there to fail, not to measure."""
    end = time.monotonic() + limit_s
    while not (actual := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    assert actual
    return actual


def ready_again(engine, n: int = 1):
    until(lambda: engine.restarts >= n and engine.health().state == "ready" and engine.pid)


def fault_of(stream) -> KaikouError:
    with pytest.raises(KaikouError) as error:
        for _ in range(2000):
            next(stream)
    return error.value


def is_alive(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if Path("/proc/self/stat").exists()
            else os.kill(pid, 0) is None
        )
    except (OSError, ProcessLookupError):
        return False


def group(pid: int) -> list[int]:
    """Living processes of a process group."""
    ps_output = subprocess.run(
        ["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    return [
        int(p)
        for p, g, s in (line.split()[:3] for line in ps_output.splitlines())
        if int(g) == pid and not s.startswith("Z")
    ]
