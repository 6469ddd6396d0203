"""Whether the voice goes on without holes: a slow or jittery generator, a blocked page, a listener
that stands still (J1 to J3, B1).
"""

from __future__ import annotations

import time

import numpy as np

from scripts.player_bench.bench import Bench, row
from tests.browser.harness import RATE, Player


def teach(p: Player, instructions: str) -> None:
    """One short stream, for the pace that this engine does not announce."""
    p.say(instructions)
    p.until("done", timeout_s=30)


@row("J1", "generator at real time, jitter 50 ms, 30 s")
def j1(k: Bench):
    p = k.plain()
    p.warm()
    teach(p, "rtf=1 jitter=0.05 chunk=0.2 seconds=3")
    p.say("rtf=1 jitter=0.05 chunk=0.2 seconds=30")
    p.until("done", timeout_s=60)
    c = p.counters
    return (
        f"{c['underruns']} underruns, {c['missing'] / RATE * 1000:.0f} ms missing",
        c["underruns"] == 0,
        c,
    )


def holes(x: np.ndarray) -> list[float]:
    """Lengths in ms of the silences inside a tone (it crosses zero, so 2 ms of zeros make one)."""
    loud = np.flatnonzero(np.abs(x) > 1e-6)
    gaps = np.diff(loud)
    return [float(g) / RATE * 1000 for g in gaps[gaps > RATE * 0.002]]


@row("J2", "real-time factor 1.3, 20 s")
def j2(k: Bench):
    p = k.plain()
    p.warm()
    teach(p, "rtf=1.3 chunk=0.2 seconds=3")
    p.js("() => { tape.port.postMessage('again') }")
    p.say("rtf=1.3 chunk=0.2 seconds=20")
    p.until("done", timeout_s=60)
    gaps, c = holes(p.rendered()), p.counters  # the tape began anew with the second stream
    shortest = min(gaps, default=0)
    return (
        f"{len(gaps)} pauses, shortest {shortest:.0f} ms",
        len(gaps) <= 4 and shortest >= 50 and c["underruns"] == len(gaps),
        {"gaps_ms": gaps, **c},
    )


@row("J3", "three 500 ms main-thread blocks during play")
def j3(k: Bench):
    p = k.plain()
    p.warm()
    p.say("rtf=0.5 first=0.1 chunk=0.1 seconds=5")
    p.until("playing")
    for _ in range(3):
        time.sleep(0.7)
        p.js("() => { const end = performance.now() + 500; while (performance.now() < end); }")
    p.until("done")
    gaps, c = holes(p.rendered()), p.counters
    return f"{sum(gaps):.0f} ms missing", sum(gaps) <= 10, c


@row("B1", "burst of 600 s, client suspended")
def b1(k: Bench):
    p = k.plain()
    p.warm()
    p.say("rtf=0 chunk=0.2 seconds=600")
    p.until("playing")
    p.js("KK.player.output.ctx.suspend()")
    time.sleep(3)
    ahead_s = p.js("KK.player.peaks.length / 100") - p.counters["played"] / RATE
    p.js("KK.player.stop()")
    return f"{ahead_s:.2f} s ahead (lead 15 s)", ahead_s <= 15.2, {"ahead_s": ahead_s}
