"""How many processes the built-in voice begins with: what batches gain is bounded by it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from webui.app import engine_makers
from webui.settings import EngineChoice, Settings


@pytest.mark.parametrize(
    ("cores", "requested", "lanes"),
    [(1, 0, 2), (2, 0, 2), (3, 0, 3), (4, 0, 4), (64, 0, 4), (2, 6, 6), (8, 1, 1)],
)
def test_as_many_workers_as_cores_within_bounds_unless_told(monkeypatch, cores, requested, lanes):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    engine = engine_makers(replace(Settings(), engine=EngineChoice("builtin", workers=requested)))[
        0
    ]()
    try:
        assert engine.describe().lanes == lanes
    finally:
        engine.close()
