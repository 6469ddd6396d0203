"""A batch survives kill -9 and the power cut behind it: nothing lost, nothing twice, nothing half;
and the same judge catches a studio that marks too early.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.batch_chaos.journal import cut_power
from scripts.batch_chaos.judge import judge
from scripts.batch_chaos.kills import alone, run
from scripts.batch_chaos.life import live
from tests.engine.fake import FakeEngine
from tests.nest import NEST
from webui.errors import NotReady
from webui.messages import Message

# 50 kills in all, 6 of them with the built-in engine, whose processes take seconds to start;
# scripts/chaos_batch.py does 200 in 1,000 lines
KILLS = [("builtin", 6, 30), ("tone", 44, 200)]


def start(argv, log):
    return (
        NEST.hatch(argv, log, dict(os.environ), 0, "scripts.batch_chaos.life")
        if NEST
        else alone(argv, log)
    )


@pytest.mark.parametrize(("engine", "kills", "lines"), KILLS)
def test_kills_during_a_batch_lose_nothing(tmp_path, engine, kills, lines):
    account = run(tmp_path, kills, lines, engine, steps_each=20, start=start)
    assert account.first_bad is None, account
    assert account.kills >= 0.8 * kills, "the batch was over before it was killed often enough"
    assert (
        account.last.states == {"done": lines}
        and account.last.is_clean
        and account.last.strays == []
    )
    assert account.redone <= account.kills
    assert not list((tmp_path / "data" / "sounds").rglob(".new-*")), (
        "what a life left half-written was taken away"
    )


@pytest.mark.parametrize("wrong", ["mark_first", "no_sync"])
def test_the_same_judge_catches_the_mistake(tmp_path, wrong):
    account = run(tmp_path, 12, 200, "tone", wrong, start=start)
    assert account.first_bad is not None and account.first_bad.lost


def test_a_power_cut_takes_what_was_not_synced_and_nothing_else(tmp_path):
    def sound_path(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(b"x" * 100)
        return path

    safe, half, unnamed = sound_path("safe.wav"), sound_path("half"), sound_path("unnamed.wav")
    journal = [
        ["put", str(tmp_path / "d1")],
        ["sync", str(tmp_path / "d1")],
        ["move", str(tmp_path / "d1"), str(safe)],
        ["sync_folder", str(tmp_path)],
        ["put", str(half)],
        ["put", str(tmp_path / "d2")],
        ["sync", str(tmp_path / "d2")],
        ["move", str(tmp_path / "d2"), str(unnamed)],
    ]
    assert cut_power(journal) == 2
    assert (
        safe.stat().st_size == 100
        and half.stat().st_size == 50
        and not unnamed.exists()
        and (tmp_path / "d2").stat().st_size == 100
    )


def test_the_judge_sees_a_short_file_behind_a_mark(tmp_path):
    run(tmp_path, 1, 3, "tone", steps_each=1, start=start)
    data = tmp_path / "data"
    assert judge(data).states == {"done": 3} and judge(data).is_clean
    first = next((data / "sounds").glob("??/*.wav"))
    first.write_bytes(first.read_bytes()[:-2])
    assert judge(data).half == [first.name] and len(judge(data).lost) == 1


def test_a_life_whose_engine_cannot_start_ends_with_the_reason(tmp_path, monkeypatch):
    """Waiting for sound from nobody, the count of lives never came to an end."""

    def start(engine):
        raise NotReady(Message("There is nothing there.", "什么也没有。"))

    monkeypatch.setattr(FakeEngine, "start", start)
    with pytest.raises(NotReady, match="nothing there"):
        live(tmp_path / "data", tmp_path / "journal", 3, engine="tone")
