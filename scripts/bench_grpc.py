"""First sound over gRPC beside first sound over HTTP: one studio, the built-in voice, the ways
taken in turn, so that what else the machine does meets both alike.

Each way keeps its connection open. The clock runs from the call to the first samples in hand; of
several streams at once, each has a clock of its own. Exit code 1 where gRPC is more than 2 ms later
at one stream.

    python scripts/bench_grpc.py --times 40
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.serve import free_port, running
from webui.client import TTS

TEXTS = (
    "The kettle is on, sit down.",
    "清晨的风从窗口吹进来。",
    "I will be there at half past nine.",
    "今天的风很温柔，出去走走吧。",
)
VOICE, AT_ONCE, NEAR_MS = "starter-en-mid", 8, 2.0


def first_ms(tts: TTS, text: str, seed: int) -> float:
    began_s = time.perf_counter()
    with tts.stream(text, VOICE, seed=seed) as stream:
        next(stream)
        waited_s = time.perf_counter() - began_s
        for _ in stream:
            pass
    return 1000 * waited_s


def together(ask: Callable[[int], float], n: int) -> list[float]:
    """`ask(i)` in n threads that begin at once."""
    results: list[float] = []
    barrier = threading.Barrier(n)

    def run(i: int) -> None:
        barrier.wait()
        results.append(ask(i))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def row(name: str, values: list[float]) -> float:
    ordered = sorted(values)
    p50 = statistics.median(ordered)
    print(f"{name:<24} {p50:8.1f} {ordered[int(0.95 * (len(ordered) - 1))]:8.1f} {len(ordered):6d}")
    return p50


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--times", type=int, default=40, help="streams of each way (default 40)")
    args = p.parse_args()
    port, env = free_port(), {"KAIKOU_STARTS_PER_MINUTE": "1000000", "KAIKOU_MAX_STREAMS": "16"}
    with running("--grpc-port", str(port), engine="builtin", env=env) as studio:
        ways = {"HTTP": TTS(studio.url), "gRPC": TTS(f"grpc://127.0.0.1:{port}")}
        for tts in ways.values():  # connections, prompts and caches are warm
            for text in TEXTS:
                first_ms(tts, text, 1)
        alone: dict[str, list[float]] = {name: [] for name in ways}
        beside: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(args.times):
            for name in sorted(ways, reverse=bool(i % 2)):
                alone[name].append(first_ms(ways[name], TEXTS[i % len(TEXTS)], i))
        for i in range(max(1, args.times // AT_ONCE)):
            for name in sorted(ways, reverse=bool(i % 2)):
                beside[name] += together(
                    lambda n, tts=ways[name], i=i: first_ms(tts, TEXTS[n % len(TEXTS)], i), AT_ONCE
                )
    print(f"{'first samples, ms':<24} {'p50':>8} {'p95':>8} {'n':>6}")
    p50 = {name: row(name, alone[name]) for name in ways}
    for name in ways:
        row(f"{name}, {AT_ONCE} at once", beside[name])
    return int(p50["gRPC"] > p50["HTTP"] + NEAR_MS)


if __name__ == "__main__":
    sys.exit(main())
