"""How soon after the click the first sample is rendered: warm, cold, behind a proxy, by the
fallback (L1 to L4).
"""

from __future__ import annotations

import statistics
import time

from scripts.player_bench.bench import FREE, Bench, row
from tests.browser.harness import Player, Studio
from tests.browser.proxy import Proxy
from tests.serve import running


def click_to_sound(p: Player, times: int) -> list[float]:
    """ms from the trusted click to the first rendered quantum, once per press."""
    out = []
    for _ in range(times):
        p.say()
        p.until("done", timeout_s=30)
        out.append(p.counters["firstRenderedMs"])
        time.sleep(0.15)
    return out


def judged(ms: list[float], median: float, worst: float, **more) -> tuple[str, bool, dict]:
    m, w = statistics.median(ms), max(ms)
    return (
        f"median {m:.1f} ms, worst {w:.1f} ms",
        m <= median and w <= worst,
        {"ms": [round(x, 1) for x in ms], **more},
    )


@row("L1", "click to first rendered sample, warm, local")
def l1(k: Bench):
    p = k.page()
    p.warm()
    click_to_sound(p, 2)  # the first streams of a fresh process compile things
    ms = click_to_sound(p, k.times)
    return judged(
        ms, 20, 40, heard_ms=p.counters["firstHeardMs"], audible_ms=p.counters["firstAudibleMs"]
    )


@row("L2", "first click of the page, context cold")
def l2(k: Bench):
    first = k.page()  # a server that has spoken with this voice; each page below is new
    first.warm()
    click_to_sound(first, 2)
    ms = []
    for _ in range(k.times):
        p = Studio(first.page.context, k.url, voice=first.voice)
        time.sleep(0.5)
        ms += click_to_sound(p, 1)
        p.page.close()
    return judged(ms, 40, 1e9)


@row("L3", "through a buffering reverse proxy with a sub-path")
def l3(k: Bench):
    with (
        running("--root-path", "/voice", env=FREE) as studio,
        Proxy(studio.url, "/voice").running() as proxy,
    ):
        p = k.page(proxy.url)
        p.warm()
        click_to_sound(p, 2)
        return judged(click_to_sound(p, k.times), 30, 50)


@row("L4", "fallback transport")
def l4(k: Bench):
    p = k.page(query="?lang=en&transport=fetch")
    p.warm()
    click_to_sound(p, 2)
    assert p.js("KK.player.via") == "fetch"
    return judged(click_to_sound(p, k.times), 30, 50)
