#!/usr/bin/env python
"""How many streams a fleet carries, by simulation: so many GPUs, first sounds quick enough, few
refused, few underruns.

    python scripts/size_fleet.py                        # the table for 1 to 1,000 GPUs
    python scripts/size_fleet.py --gpus 16 --speed 30   # of a GPU that you have measured

How quick a GPU is has not been measured for this table: --speed and --first-ms are assumptions, and
`scripts/bench_engine.py` measures yours. What is simulated is printed with the table.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.fleet_simulation.fleet import Assumptions, Outcome, simulate

SIZES = (1, 4, 16, 64, 256, 1000)
LOADS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9)  # mean, over what the GPUs make


def largest(assumed: Assumptions, n_gpus: int, limit_ms: float) -> tuple[float, Outcome]:
    """The largest mean load at which first sounds are in time, refusals below 1 % and underruns
    below 0.1 %; the smallest one tried where none is. Work is saved by halving.
    """
    low, high, best = 0, len(LOADS) - 1, None
    while low <= high:
        middle = (low + high) // 2
        outcome = simulate(assumed, n_gpus, LOADS[middle])
        if outcome.is_good(limit_ms):
            best, low = (LOADS[middle], outcome), middle + 1
        else:
            high = middle - 1
    return best or (LOADS[0], simulate(assumed, n_gpus, LOADS[0]))


def main() -> int:
    usual = Assumptions()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument(
        "--speed",
        type=float,
        default=usual.speed,
        help="seconds of sound that a GPU makes in a second for all its streams; assumed,"
        f" default {usual.speed:g}",
    )
    parser.add_argument(
        "--first-ms",
        type=float,
        default=1000 * usual.first_s,
        help=f"of an idle GPU, to a first sound; assumed, default {1000 * usual.first_s:g}",
    )
    parser.add_argument("--limit-ms", type=float, default=500, help="p95 first sound, default 500")
    parser.add_argument("--seconds", type=float, default=usual.window_s, help="simulated")
    parser.add_argument("--seed", type=int, default=usual.seed)
    args = parser.parse_args()
    assumed = replace(
        usual,
        speed=args.speed,
        first_s=args.first_ms / 1000,
        window_s=args.seconds,
        seed=args.seed,
    )
    print(assumed.describe(), "", sep="\n")
    print(
        "| GPUs | streams, mean / peak | replicas at the peak | first sound p50 / p95 ms | refused"
        " | underruns | moved by failures |"
    )
    print("|---|---|---|---|---|---|---|")
    for n_gpus in args.gpus:
        load, outcome = largest(assumed, n_gpus, args.limit_ms)
        note = "" if outcome.is_good(args.limit_ms) else f" (over a limit at load {load})"
        print(outcome.row(n_gpus) + note, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
