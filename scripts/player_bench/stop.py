"""How soon silence and the end of all work follow a stop, a closed tab, a dropped network or a new
press (C1, C2).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from scripts.player_bench.bench import Bench, row
from tests.browser.harness import RATE, wav_samples
from tests.browser.proxy import Proxy


@row("C1", "cancel, tab closed, network dropped")
def c1(k: Bench):
    silent, closed, dropped = [], [], []
    for _ in range(k.times):
        p = k.plain()
        p.warm()
        p.say("rtf=1 chunk=0.1 seconds=20")
        p.until("playing")
        time.sleep(0.3)
        silent.append(
            p.js(
                """async () => {
                const node = KK.player.output.node, x = new Float32Array(256);
                const a = new AnalyserNode(node.context, {fftSize: 256});
                node.connect(a);
                await new Promise(r => setTimeout(r, 60));
                const t = performance.now();
                KK.player.stop();
                for (;;) {
                  await new Promise(r => setTimeout(r, 0));
                  a.getFloatTimeDomainData(x);
                  if (x.every(v => v === 0)) return performance.now() - t;
                } }"""
            )
            - 256 / RATE * 1000
        )
        p.page.context.close()
    for i in range(2 * k.times):
        with Proxy(k.url, "/p").running() as proxy:
            p = k.plain(proxy.url)
            p.warm()
            p.say("rtf=1 chunk=0.04 seconds=20")
            p.until("playing")
            proxy.is_down = True
            (closed, dropped)[i % 2].append(
                finalised(k.studio, proxy, (p.page.close, proxy.cut)[i % 2])
            )
            p.page.context.close()
    figure = (
        f"silence after {max(silent):.0f} ms; finalised after: tab closed {max(closed):.0f} ms,"
        f" network dropped {max(dropped):.0f} ms"
    )
    return (
        figure,
        max(silent) <= 50 and max(closed) <= 100 and max(dropped) <= 100,
        {"silent_ms": silent, "closed_ms": closed, "dropped_ms": dropped},
    )


def finalised(studio, proxy: Proxy, act) -> float:
    """ms from the moment the server's socket closed until no generator is open; asking costs a few
    of them.
    """
    with studio.client() as http, ThreadPoolExecutor(1) as pool:

        def watch() -> float:
            while True:
                s = http.get("/test/state").json()
                if s["opened"] == s["finalised"]:
                    return time.perf_counter()

        over = pool.submit(watch)
        act()
        return (over.result() - proxy.closed_at) * 1000


def ends_with(x: np.ndarray, wav: np.ndarray) -> bool:
    """The last thing that sounds is the whole of `wav`, sample by sample, and silence after it."""
    samples = np.round(x * 32768).astype(np.int16)
    last = np.flatnonzero(samples)[-1] + 1
    return any(
        np.array_equal(samples[a : a + len(wav)], wav)
        for a in range(max(0, last - len(wav)), last - len(wav) + 8)
    )


@row("C2", "Generate pressed 10 times in 2 s")
def c2(k: Bench):
    p = k.plain()
    p.warm()
    before = k.studio.state()
    for i in range(10):
        p.say("rtf=0.2 chunk=0.1 seconds=2", seed=10 + i)
        time.sleep(0.17)
    p.until("done")
    x, s = p.rendered(), k.studio.state()
    wav = wav_samples(
        p.page.context.request.get(f"{k.url}/tts/result/{p.js('KK.player.job')}.wav").body()
    )
    whole = ends_with(x, wav)
    opened, over = s["opened"] - before["opened"], s["finalised"] - before["finalised"]
    return (
        f"{opened} generators, {over} finalised, last voice whole: {whole}",
        whole and opened == over,
        {"opened": opened, "finalised": over},
    )
