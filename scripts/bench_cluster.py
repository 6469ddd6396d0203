#!/usr/bin/env python
"""First sound through a fleet beside the engine in the studio, what a fleet costs, and what its
listeners hear when replicas are killed.

    python scripts/bench_cluster.py               # a fleet of its own with Ray Serve
    python scripts/bench_cluster.py --plain       # one replica behind a plain server, without Ray
    python scripts/bench_cluster.py --kills 50    # only: replicas killed under eight listeners
    python scripts/bench_cluster.py --head-away 30  # only: Ray's head answers nobody for so long
    python scripts/bench_cluster.py --ramp        # only: 1 to 3 replicas as the listeners need

Both ways speak the same sentences with the built-in instant voice, in turn. CPU is user and system
time of all processes that the way needs, per second of sound.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import soundfile

from scripts.cluster_bench.fleet import RAY_SERVE, fleet, request, tree
from scripts.cluster_bench.kills import kill_replicas, stop_head, tally_of
from scripts.cluster_bench.ramp import ramp
from tests.serve import ROOT
from webui.cluster.remote import ClusterEngine
from webui.engine.base import Engine
from webui.engine.espeak import EspeakEngine
from webui.types import Prompt

LISTENERS = (1, 8, 32)
TICK_HZ = os.sysconf("SC_CLK_TCK")


def cpu_s(*roots: int) -> float:
    """User and system time so far of processes and all below them."""
    total = 0
    for pid in {p for root in roots for p in tree(root)}:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICK_HZ


def first_sounds(engine: Engine, prompt: Prompt, n_listeners: int, n_times: int) -> dict:
    """Each listener speaks n_times sentences, one after the other, on a lane of its own."""
    n_lanes = engine.describe().lanes
    lock, firsts, sounds = threading.Lock(), [], []

    def listen(listener: int) -> None:
        for n in range(n_times):
            began = time.perf_counter()
            stream = engine.stream(request(n), prompt, listener % n_lanes)
            first = next(stream)
            took = time.perf_counter() - began
            n_samples = len(first.samples) + sum(len(chunk.samples) for chunk in stream)
            with lock:
                firsts.append(took)
                sounds.append(n_samples / engine.describe().sample_rate)

    threads = [threading.Thread(target=listen, args=(n,)) for n in range(n_listeners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"p50_ms": 1000 * statistics.median(firsts), "sound_s": sum(sounds)}


def compare(local: Engine, prompt: Prompt, engine: ClusterEngine, n_times: int) -> None:
    print("| listeners | studio ms | fleet ms | more ms | CPU/s studio | CPU/s fleet |")
    print("|---|---|---|---|---|---|")
    for n_listeners in LISTENERS:
        rows: dict[str, list[dict]] = {"local": [], "fleet": []}
        for _ in range(3):
            for name, speaker in (("local", local), ("fleet", engine)):
                before = cpu_s(os.getpid())
                row = first_sounds(speaker, prompt, n_listeners, max(2, n_times // n_listeners))
                row["cpu"] = (cpu_s(os.getpid()) - before) / row["sound_s"]
                rows[name].append(row)
        ms = {k: statistics.median(r["p50_ms"] for r in v) for k, v in rows.items()}
        cpu = {k: statistics.median(r["cpu"] for r in v) for k, v in rows.items()}
        print(
            f"| {n_listeners} | {ms['local']:.1f} | {ms['fleet']:.1f} |"
            f" {ms['fleet'] - ms['local']:.1f} | {cpu['local']:.3f} | {cpu['fleet']:.3f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help="one replica without Ray")
    parser.add_argument("--kills", type=int, default=0, metavar="N")
    parser.add_argument("--head-away", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--ramp", action="store_true")
    parser.add_argument("--times", type=int, default=24, help="sentences of the one listener")
    args = parser.parse_args()
    local = EspeakEngine(2)
    local.start()
    samples, rate = soundfile.read(ROOT / "assets/voices/starter-en-low.wav", dtype="float32")
    prompt = local.encode(samples, rate, "", "en")
    try:
        if args.kills or args.head_away:
            three = (*RAY_SERVE, "--replicas", "3", "--streams", "40", "--cpus-per-replica", "0.5")
            with fleet(*three, n_replicas=3) as (engine, pid):
                if args.kills:
                    disturb = partial(kill_replicas, engine, pid, args.kills)
                else:
                    disturb = partial(stop_head, pid, args.head_away)
                print(tally_of(local, prompt, engine, disturb))
        elif args.ramp:
            scaled = ("--replicas", "1..3", "--streams", "4", "--downscale-after", "10")
            scaled += ("--cpus-per-replica", "0.5")  # three on two cores
            with fleet(*RAY_SERVE, *scaled) as (engine, _):
                ramp(local, prompt, engine)
        else:
            program = (
                ("-m", "tests.engine.builtin_replica")
                if args.plain
                else (*RAY_SERVE, "--replicas", "2", "--streams", "40")
            )
            with fleet(*program) as (engine, pid):
                compare(local, prompt, engine, args.times)
    finally:
        local.close()


if __name__ == "__main__":
    main()
