"""Sends books to a broker, kills their consumers (-9) again and again at exact steps, freezes the
broker for a while, and says what became of every message.

Wanted: none lost, every file written once and whole, every book in its order, every dead letter
with its reason. The studio is the real one with the tone engine, over HTTP; the broker is Tansu
(requirements-brokers.txt). Exit code 1 when something is wrong.

    python scripts/chaos_kafka.py --messages 10000 --kills 50 --down-s 30
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.kafka_chaos.brokers import tansu_broker
from scripts.kafka_chaos.kills import Run, go
from tests.serve import running


def show(run: Run, n_done: int) -> None:
    print(f"{n_done} of {run.messages} announced, {run.n_kills} kills", file=sys.stderr, flush=True)


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--messages", type=int, default=2000)
    p.add_argument("--kills", type=int, default=20)
    p.add_argument("--down-s", type=float, default=30.0, help="the broker is frozen half-way")
    p.add_argument("--consumers", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--keep", type=Path, help="leave the folder of the run there")
    a = p.parse_args()
    run = Run(a.messages, a.kills, a.down_s, consumers=a.consumers, seed=a.seed)
    with tempfile.TemporaryDirectory(prefix="kaikou-kafka-") as folder, running() as studio:
        folder = a.keep or Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tansu_broker() as broker:
            go(run, broker, studio.url, folder, show)
        n_opened = studio.state()["opened"]
    v = run.verdict
    steps = ", ".join(f"{step} {n}" for step, n in sorted(run.kills_by_step.items()))
    print(
        f"{run.messages} messages in {run.seconds:.0f} s, {run.n_kills} kills ({steps}), broker"
        f" frozen {run.down_s:.0f} s: {v.n_done} done, {v.n_dead} dead letters, {v.n_files} files,"
        f" {v.n_repeated} announcements repeated, {n_opened} streams of the engine;"
        f" faults: {v.faults or 'none'}"
    )
    return 1 if v.faults or run.n_kills < run.kills else 0


if __name__ == "__main__":
    sys.exit(main())
