"""Rounds of a bench: some users one request after another, or strangers who come when they like;
and what a round tells as one row.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from . import memory
from .ways import Run

Speak = Callable[[int], Run]  # seed -> the run, in the calling thread


@dataclass
class Round:
    runs: list[Run] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    rss_mb: float = 0.0
    gpu_mb: float = 0.0

    def add(self, other: Round) -> None:
        self.runs += other.runs
        self.failures += other.failures
        self.wall_s, self.cpu_s = self.wall_s + other.wall_s, self.cpu_s + other.cpu_s
        self.rss_mb, self.gpu_mb = max(self.rss_mb, other.rss_mb), max(self.gpu_mb, other.gpu_mb)


def closed(speak: Speak, users: int, times: int, seed: int) -> Round:
    """Each user asks again as soon as it has heard."""
    return _measured(
        [0.0] * users, lambda user: [seed + 1000 * user + n for n in range(times)], speak
    )


def poisson(speak: Speak, per_s: float, requests: int, seed: int) -> Round:
    """Requests that know nothing of each other, `per_s` on average."""
    rng, at, starts = random.Random(seed), 0.0, []
    for _ in range(requests):
        at += rng.expovariate(per_s)
        starts.append(at)
    return _measured(starts, lambda user: [seed + 1000 * user], speak)


def _measured(starts: Sequence[float], seeds: Callable[[int], list[int]], speak: Speak) -> Round:
    out, lock = Round(), threading.Lock()
    memory.forget_peaks()
    began, cpu = time.perf_counter(), time.process_time()

    def user(number: int) -> None:
        time.sleep(max(0.0, began + starts[number] - time.perf_counter()))
        for seed in seeds(number):
            try:
                run = speak(seed)
            except Exception as error:  # counted, so that a round says what it could not do
                with lock:
                    out.failures.append(f"{type(error).__name__}: {error}")
            else:
                with lock:
                    out.runs.append(run)

    threads = [threading.Thread(target=user, args=(number,)) for number in range(len(starts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.wall_s, out.cpu_s = time.perf_counter() - began, time.process_time() - cpu
    out.rss_mb, out.gpu_mb = memory.peaks_mb()
    return out


def row(done: Round, **named: object) -> dict:
    """named: variant, users, steps, hop, precision and whatever else says what was measured."""
    runs = done.runs
    if not runs:
        return {**named, "failures": len(done.failures), "first_failure": done.failures[:1]}
    first = sorted(1000 * run.first_s for run in runs)
    audio = sum(run.audio_s for run in runs)

    def mean(stages: Sequence[dict[str, float]]) -> dict[str, float]:
        return {
            name: round(statistics.mean(s.get(name, 0.0) for s in stages), 4)
            for name in ("prefill", "tokens", "flow", "vocoder")
        }

    return {
        **named,
        "first_chunk_ms_p50": statistics.median(first),
        "first_chunk_ms_p95": first[min(len(first) - 1, round(0.95 * len(first)))],
        "rtf": sum(run.wall_s for run in runs) / audio, "audio_s_per_s": audio / done.wall_s,
        "underruns": sum(run.underruns for run in runs),
        "estimator_frames_per_frame": sum(r.computed for r in runs) / sum(r.emitted for r in runs),
        "peak_rss_mb": done.rss_mb, "peak_gpu_mb": done.gpu_mb,
        "cpu_s_per_audio_s": done.cpu_s / audio, "requests": len(runs),
        "failures": len(done.failures),
        "stages_s": mean([run.stages for run in runs]),
        "first_stages_s": mean([run.first_stages for run in runs]),
    }  # fmt: skip
