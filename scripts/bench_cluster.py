#!/usr/bin/env python
"""First sound through a fleet beside the engine in the studio, what a fleet costs, and what its
listeners hear when replicas are killed.

    python scripts/bench_cluster.py               # a fleet of its own with Ray Serve
    python scripts/bench_cluster.py --plain       # one replica behind a plain server, without Ray
    python scripts/bench_cluster.py --kills 50    # only: replicas killed under eight listeners

Both ways speak the same sentences with the built-in instant voice, in turn. CPU is user and system
time of all processes that the way needs, per second of sound.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import numpy as np
import soundfile

from tests.serve import ROOT, free_port
from webui.cluster.remote import ClusterEngine
from webui.engine.base import Engine
from webui.engine.espeak import EspeakEngine
from webui.errors import KaikouError
from webui.types import Prompt, SpeechRequest

TEXTS = (
    "The kettle is on, sit down.",
    "清晨的风从窗口吹进来。",
    "I will be there at half past nine.",
)
LISTENERS = (1, 8, 32)
START_S = 180.0
TICK_HZ = os.sysconf("SC_CLK_TCK")


def request(n: int, text: str = "") -> SpeechRequest:
    text = text or TEXTS[n % len(TEXTS)]
    return SpeechRequest(f"b{n}", text, "v", seed=n, segments=(text,), voice_engine="instant")


@contextlib.contextmanager
def fleet(plain: bool, n_replicas: int) -> Iterator[tuple[ClusterEngine, int]]:
    """(engine, process id of the fleet)."""
    port = free_port()
    program = (
        ["-m", "tests.engine.builtin_replica", str(port)]
        if plain
        else ["-m", "webui.cluster", "serve", "--engine", "builtin", "--port", str(port)]
        + ["--replicas", str(n_replicas), "--streams", "40"]
    )
    environment = {**os.environ, "KAIKOU_NATURAL": "0", "KAIKOU_WORKERS": "2"}
    process = subprocess.Popen([sys.executable, *program], cwd=ROOT, env=environment)
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
    found = {root}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


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


def compare(here: Engine, prompt: Prompt, engine: ClusterEngine, pid: int, n_times: int) -> None:
    print("| listeners | studio ms | fleet ms | more ms | CPU/s studio | CPU/s fleet |")
    print("|---|---|---|---|---|---|")
    for n_listeners in LISTENERS:
        rows: dict[str, list[dict]] = {"here": [], "fleet": []}
        for _ in range(3):
            for name, one in (("here", here), ("fleet", engine)):
                before = cpu_s(os.getpid())
                row = first_sounds(one, prompt, n_listeners, max(2, n_times // n_listeners))
                row["cpu"] = (cpu_s(os.getpid()) - before) / row["sound_s"]
                rows[name].append(row)
        ms = {k: statistics.median(r["p50_ms"] for r in v) for k, v in rows.items()}
        cpu = {k: statistics.median(r["cpu"] for r in v) for k, v in rows.items()}
        print(
            f"| {n_listeners} | {ms['here']:.1f} | {ms['fleet']:.1f} |"
            f" {ms['fleet'] - ms['here']:.1f} | {cpu['here']:.3f} | {cpu['fleet']:.3f} |",
            flush=True,
        )


def replica_pids(pid: int) -> list[int]:
    """Processes of Ray that hold a replica."""
    found = []
    for child in tree(pid):
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]
            if b"ServeReplica" in title:
                found.append(child)
    return found


def kill_replicas(here: Engine, prompt: Prompt, engine: ClusterEngine, pid: int, n: int) -> None:
    """Eight listeners speak all the time; each sound is compared with the undisturbed one."""
    text = " ".join(TEXTS)
    undisturbed = np.concatenate([c.samples for c in here.stream(request(1, text), prompt)])
    stop, lock = threading.Event(), threading.Lock()
    counts = {"whole": 0, "wrong": 0, "told": 0, "replays": 0}

    def listen() -> None:
        while not stop.is_set():
            stream = engine.stream(request(1, text), prompt)
            try:
                sound = np.concatenate([chunk.samples for chunk in stream])
                kind = "whole" if np.array_equal(sound, undisturbed) else "wrong"
            except KaikouError as error:
                print("told:", error.code, error)
                kind = "told"
                stop.wait(0.5)
            with lock:
                counts[kind] += 1
                counts["replays"] += stream.n_replays

    threads = [threading.Thread(target=listen) for _ in range(8)]
    for thread in threads:
        thread.start()
    n_killed = 0
    while n_killed < n:
        time.sleep(3.0)
        replicas = replica_pids(pid)
        if len(replicas) > 1:
            os.kill(replicas[n_killed % len(replicas)], signal.SIGKILL)
            n_killed += 1
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{n_killed} replicas killed under 8 listeners: {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help="one replica without Ray")
    parser.add_argument("--kills", type=int, default=0, metavar="N")
    parser.add_argument("--times", type=int, default=24, help="sentences of the one listener")
    args = parser.parse_args()
    here = EspeakEngine(2)
    here.start()
    samples, rate = soundfile.read(ROOT / "assets/voices/starter-en-low.wav", dtype="float32")
    prompt = here.encode(samples, rate, "", "en")
    try:
        with fleet(args.plain, 3 if args.kills else 2) as (engine, pid):
            if args.kills:
                kill_replicas(here, prompt, engine, pid, args.kills)
            else:
                compare(here, prompt, engine, pid, args.times)
    finally:
        here.close()


if __name__ == "__main__":
    main()
