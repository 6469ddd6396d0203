"""That every sample is played, once: after a refused autoplay, over a suspension, and against the
downloaded file (S1, S2, I1).
"""

from __future__ import annotations

import time

import numpy as np

from scripts.player_bench.bench import Bench, row
from tests.browser.harness import RATE, wav_samples


@row("S1", "autoplay restricted, no gesture")
def s1(k: Bench):
    p = k.plain(is_touched=False)
    raw = p.raw
    raw(
        f"KK.player.start({{input: 'One tone.', voice: '{p.voice}', mode: 'instruct', consent:"
        " true, seed: 1, instructions: 'seconds=2'})"
    )
    end = time.monotonic() + 10
    while raw("KK.player.state") != "locked" and time.monotonic() < end:
        time.sleep(0.02)
    state, before = raw("KK.player.state"), raw("KK.player.counters.played")
    p.page.click(".kk-go")
    p.until("done")
    c = p.counters
    return (
        f"{state}, then {c['rendered']} of 48000 samples after one tap",
        state == "locked" and before == 0 and c["rendered"] == 48000 and c["underruns"] == 0,
        c,
    )


@row("S2", "context suspended 2 s in mid-stream")
def s2(k: Bench):
    p = k.plain()
    p.warm()
    p.say("rtf=0.9 chunk=0.2 seconds=6")
    p.until("playing")
    time.sleep(1)
    p.js("KK.player.output.ctx.suspend()")
    p.until("locked")
    time.sleep(2)
    p.js("KK.player.output.ctx.resume()")
    p.until("done")
    c = p.counters
    return (
        f"{c['rendered']} of {6 * RATE} samples, {c['underruns']} underruns",
        c["rendered"] == 6 * RATE and c["underruns"] == 0,
        c,
    )


@row("I1", "result file against what the ring played")
def i1(k: Bench):
    p = k.plain()
    p.warm()
    p.say("rtf=0.1 seconds=5")
    p.until("done")
    url, get = f"{k.url}/tts/result/{p.js('KK.player.job')}.wav", p.page.context.request.get
    data = get(url).body()
    wav, x = wav_samples(data), p.rendered()[: 5 * RATE]
    differ = (
        int(np.count_nonzero(np.round(x * 32768).astype(np.int16) != wav))
        if len(wav) == len(x)
        else -1
    )
    part = get(url, headers={"Range": "bytes=100-299"})
    ok = differ == 0 and part.status == 206 and part.body() == data[100:300]
    return (
        f"{differ} of {len(wav)} samples differ; header true; Range {part.status}",
        ok,
        {"differ": differ},
    )
