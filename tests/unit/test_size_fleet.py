"""The simulated fleet agrees with queueing theory, where theory has an answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import simpy

from scripts.fleet_simulation.fleet import Assumptions, Fleet, simulate
from scripts.fleet_simulation.replica import Replica

STEADY = replace(Assumptions(), burst=1.0, failures_per_hour=0.0, warm_s=100.0, window_s=4000.0)


def erlang_b(offered: float, n_servers: int) -> float:
    """Share that finds all servers taken and leaves."""
    blocked = 1.0
    for n in range(1, n_servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked


def erlang_c(offered: float, n_servers: int) -> float:
    """Share that has to wait."""
    blocked = erlang_b(offered, n_servers)
    return blocked / (1 - offered / n_servers * (1 - blocked))


@pytest.mark.parametrize(("n_servers", "load"), [(1, 0.6), (4, 0.7), (8, 0.85)])
def test_steps_wait_as_erlang_c_says(n_servers, load):
    """M/M/c: exponential work, Poisson arrivals."""
    env, draw, waits = simpy.Environment(), random.Random(5), []
    replica = Replica(env, 0, n_servers)

    def step(work_s):
        began_s = env.now
        yield from replica.step(work_s, due_s=began_s)
        waits.append(env.now - began_s - work_s)

    def arrive():
        for _ in range(60_000):
            yield env.timeout(draw.expovariate(load * n_servers))
            env.process(step(draw.expovariate(1.0)))

    env.process(arrive())
    env.run()
    offered = load * n_servers
    must_wait = erlang_c(offered, n_servers)
    assert sum(w > 1e-9 for w in waits) / len(waits) == pytest.approx(must_wait, rel=0.06)
    mean_s = must_wait / (n_servers - offered)
    assert sum(waits) / len(waits) == pytest.approx(mean_s, rel=0.12)


@pytest.mark.parametrize("per_s", [0.2, 0.3])
def test_sockets_are_full_as_often_as_erlang_b_says(per_s):
    """M/G/c/c: nobody waits in line, and an engine so quick that only listening takes time."""
    assumed = replace(STEADY, speed=12.0, first_s=1e-6, spread=1e-6, waiting=0, window_s=20_000.0)
    fleet = Fleet(assumed, 1, per_s)
    fleet._work_s = lambda is_first: 1e-6
    fleet.env.run(assumed.warm_s + assumed.window_s)
    offered = per_s * assumed.mean_s
    expected = erlang_b(offered, assumed.sockets)
    assert 0.1 < expected < 0.4 and fleet.outcome.refused == pytest.approx(expected, rel=0.1)
    carried = fleet.outcome.open_s / fleet.outcome.seconds  # Little's law
    assert carried == pytest.approx(offered * (1 - expected), rel=0.05)


def test_no_sound_is_late_while_there_is_room_and_much_when_there_is_none():
    idle = simulate(replace(STEADY, window_s=300.0), 4, 0.2)
    assert idle.refused == 0 and idle.underruns < 0.002 and idle.n_chunks > 1000
    assert idle.first_ms(0.5) == pytest.approx(1000 * STEADY.first_s, rel=0.2)
    # sockets for twice what the engine makes: it admits too much, and everybody hears it
    full = Fleet(replace(STEADY, window_s=300.0, spread=0.1), 1, 1.0)
    full._work_s = lambda is_first: STEADY.chunk_s * STEADY.n_lanes / 6.0
    full.env.run(400)
    assert full.outcome.underruns > 0.2 and full.outcome.refused > 0.3


def test_the_fleet_grows_with_its_listeners_and_no_further():
    outcome = simulate(replace(STEADY, window_s=300.0, least_share=0.1), 20, 0.4)
    assert 10 <= outcome.n_replicas <= 20 and outcome.refused < 0.01


def test_streams_of_a_dead_replica_go_on_at_another_one():
    often = replace(STEADY, window_s=300.0, failures_per_hour=60.0)
    outcome = simulate(often, 10, 0.3)
    assert outcome.n_moved > 20 and outcome.n_chunks > 5000
    assert 0 < outcome.underruns < 0.05


def test_the_same_seed_gives_the_same_table():
    short = replace(Assumptions(), window_s=60.0)
    assert simulate(short, 4, 0.5).row(4) == simulate(short, 4, 0.5).row(4)
    assert simulate(short, 4, 0.5).row(4) != simulate(replace(short, seed=2), 4, 0.5).row(4)


def test_the_script_prints_the_table_with_its_assumptions(capsys, monkeypatch):
    from scripts import size_fleet

    argv = "size_fleet.py --gpus 1 2 --seconds 60 --speed 20 --first-ms 100"
    monkeypatch.setattr("sys.argv", argv.split())
    assert size_fleet.main() == 0
    text = capsys.readouterr().out
    assert "not measured" in text and "20 s of sound" in text
    assert len([line for line in text.splitlines() if line.startswith(("| 1 |", "| 2 |"))]) == 2
