"""A fleet in processes of its own, and what those processes are."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.serve import ROOT, free_port
from webui.cluster.remote import ClusterEngine
from webui.errors import KaikouError
from webui.types import SpeechRequest

TEXTS = (
    "The kettle is on, sit down.",
    "清晨的风从窗口吹进来。",
    "I will be there at half past nine.",
)
START_S = 180.0
RAY_SERVE = ["-m", "webui.cluster", "serve", "--engine", "builtin"]


def request(n: int, *texts: str) -> SpeechRequest:
    """One of TEXTS, or the sentences given."""
    texts = texts or (TEXTS[n % len(TEXTS)],)
    return SpeechRequest(
        f"b{n}", " ".join(texts), "v", seed=n, segments=texts, voice_engine="instant"
    )


@contextlib.contextmanager
def fleet(*program: str, n_replicas: int = 1) -> Iterator[tuple[ClusterEngine, int]]:
    """(engine, process id of the fleet) of a program that takes --port, or a port alone; when
    n_replicas are there.
    """
    port = free_port()
    address_args = ["--port", str(port)] if program[:2] == tuple(RAY_SERVE[:2]) else [str(port)]
    environment = {**os.environ, "KAIKOU_NATURAL": "0", "KAIKOU_WORKERS": "2"}
    process = subprocess.Popen([sys.executable, *program, *address_args], cwd=ROOT, env=environment)
    engine = ClusterEngine(f"127.0.0.1:{port}")
    try:
        end_s = time.monotonic() + START_S
        while True:
            try:
                engine.start()
                break
            except KaikouError:
                if time.monotonic() > end_s or process.poll() is not None:
                    raise
                time.sleep(0.5)
        while engine.figures()["fleet_replicas"] < n_replicas and time.monotonic() < end_s:
            time.sleep(0.5)
        yield engine, process.pid
    finally:
        engine.close()
        process.send_signal(signal.SIGINT)
        process.wait(60)


def tree(root: int) -> list[int]:
    """The process and all below it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    pids = {root}
    while more := {p for p, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return sorted(pids)


def pids_of(root: int, title: bytes) -> list[int]:
    """Of the processes below `root`, those whose program has `title` in its name."""
    pids = []
    for child in tree(root):
        with contextlib.suppress(OSError):
            if title in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
                pids.append(child)
    return pids
