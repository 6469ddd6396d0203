"""A studio for batch tests: an engine that counts what it speaks and fails or waits when told,
batches to hand in, and what became of them.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from tests.engine.fake import FakeEngine
from webui.settings import Limits, Paths, Settings
from webui.store import Line
from webui.studio import LineRequest, Studio
from webui.studio.batch import worker

ME, OTHER = "local/me", "user-ann/x"
SHORT = {"voice": "starter-en-mid", "mode": "instruct", "instruction": "seconds=0.2"}


def asks(n: int, start: int = 1, **more) -> list[LineRequest]:
    return [LineRequest(f"Line {i}.", **{**SHORT, **more}) for i in range(start, start + n)]


class Engine(FakeEngine):
    """Counts what it speaks, and can be told to fail for some texts, or to wait."""

    def __init__(self, lanes: int = 2):
        super().__init__(lanes=lanes)
        self.texts: list[str] = []
        self.faults: dict[str, list[Exception]] = {}
        self.together: list[set[str]] = []
        self.now: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def stream(self, request, prompt, lane=0):
        self.now.add(request.text)
        self.together.append(set(self.now))
        try:
            self.texts.append(request.text)
            self.gate.wait(20)
            if self.faults.get(request.text):
                raise self.faults[request.text].pop(0)
            yield from super().stream(request, prompt, lane)
        finally:
            self.now.discard(request.text)


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def studio(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(worker, "REST_S", (0.01, 0.02))
    studio = Studio(
        Settings(paths=replace(Paths(), data_dir=tmp_path), limits=replace(Limits(), stall_s=30))
    )
    studio.start(lambda: engine).join(20)
    yield studio
    engine.gate.set()
    studio.close()


def until(studio, job, *states, owner: str = ME):
    news = threading.Event()
    unwatch = studio.batch.watch(job.id, news.set)
    end = time.monotonic() + 30
    try:
        while (
            now := studio.batch.get(owner, job.id)
        ).state not in states and time.monotonic() < end:
            news.wait(0.5)
            news.clear()
        assert now.state in states, now
        return now
    finally:
        unwatch()


def lines(studio, job, owner: str = ME) -> list[Line]:
    return studio.batch.lines(owner, job.id, 1, 10_000)
