"""Many listeners at once: tabs of one browser, clients of one server (M1, M2)."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor

from scripts.player_bench.bench import FREE, Bench, row
from scripts.player_bench.start import click_to_sound
from tests.browser.harness import RATE, Player
from tests.serve import running


@row("M1", "8 tabs of one browser at once")
def m1(k: Bench):
    # the tone engine sleeps inside its steps: with fewer lanes it, not the player, would be
    # measured
    with running(env=FREE, fake_lanes=8) as studio:
        return eight_tabs(k.browser.new_context(), studio.url)


def eight_tabs(context, url: str):
    """Eight pages that have not spoken yet, of a server that has."""
    first = Player(context, url)
    first.warm()
    click_to_sound(first, 2)
    tabs = [Player(context, url, voice=first.voice) for _ in range(8)]
    for p in tabs:
        p.page.bring_to_front()
        p.warm()
        p.ask(instructions="rtf=0.1 chunk=0.2 seconds=12")
    time.sleep(
        1
    )  # the last page has just loaded; what is asked is how eight begin, not how fast one opens
    for p in tabs:
        p.js("document.getElementById('say').click()")
    for p in tabs:
        p.page.wait_for_function("KK.player.counters.firstRenderedMs !== null")
    ms = [p.counters["firstRenderedMs"] for p in tabs]
    alive = [
        p.js(
            "async () => { const t = performance.now(); await new Promise(r => setTimeout(r, 0));"
            " return performance.now() - t; }"
        )
        for p in tabs
    ]
    context.close()
    return (
        f"worst start {max(ms):.0f} ms, page answers in {max(alive):.0f} ms",
        max(ms) <= 200 and max(alive) <= 100,
        {"ms": ms, "alive_ms": alive},
    )


@row("M2", "32 clients at real time")
def m2(k: Bench):
    import websockets

    async def listen_once(url: str, token: str, i: int) -> float:
        await asyncio.sleep(i * 0.2 / 32)  # nobody presses in the same millisecond
        async with websockets.connect(url.replace("http", "ws") + "/tts/ws", max_size=None) as ws:
            await ws.send(json.dumps({"op": "hello", "v": 1, "token": token, "locale": "en"}))
            await ws.recv()
            params = {
                "input": "One tone. Two tones.",
                "voice": "alloy",
                "mode": "instruct",
                "instructions": "rtf=1 chunk=0.2 first=0.2 seconds=10",
                "seed": i,
            }
            await ws.send(
                json.dumps(
                    {"op": "start", "seq": 1, "params": params, "rate": RATE, "credit": 15 * RATE}
                )
            )
            worst, last, n = 0.0, None, 0
            while True:
                m = await asyncio.wait_for(ws.recv(), 60)
                if isinstance(m, bytes):
                    now, (_, _, _, start) = time.perf_counter(), struct.unpack_from("<HHIQ", m)
                    if (
                        start % (RATE // 5) == 0
                    ):  # the first frame of a chunk: the others of the same chunk come with it
                        worst, last = max(worst, now - last if last else 0), now
                    n += (len(m) - 16) // 2
                elif (message := json.loads(m))["op"] in ("end", "error"):
                    assert message["op"] == "end", m
                    return worst * 1000

    async def all_of_them(url: str, token: str):
        return await asyncio.gather(*[listen_once(url, token, i) for i in range(32)])

    with (
        running(env=FREE, fake_lanes=32) as studio,
        studio.client() as http,
    ):  # a generator at real time needs a lane of its own
        token = http.post("/tts/session").json()["token"]
        with ThreadPoolExecutor(
            1
        ) as pool:  # the browser driver keeps a loop of its own in this thread
            gaps = pool.submit(asyncio.run, all_of_them(studio.url, token)).result()
    return f"worst gap {max(gaps):.0f} ms of 200 ms chunks", max(gaps) <= 250, {"gaps_ms": gaps}
