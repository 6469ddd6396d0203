"""What leaves the ring, sample by sample: starts, stalls, pauses, seeks, cancels, suspensions. Real studio, tone engine, real Chromium."""

from __future__ import annotations

import time

import numpy as np
import pytest

from .harness import GESTURES_NEEDED, RATE, Player, browser, wav_samples

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chrome():
    with browser(GESTURES_NEEDED) as b:
        yield b


@pytest.fixture
def player(chrome, studio):
    context = chrome.new_context(accept_downloads=True)
    p = Player(context, studio.url)
    p.warm()
    yield p
    assert p.errors == []
    context.close()


def result(p: Player) -> np.ndarray:
    return wav_samples(p.page.context.request.get(f"{p.url}/tts/result/{p.js('KK.player.job')}.wav").body())


def s16(x: np.ndarray) -> np.ndarray:
    return np.round(x * 32768).astype(np.int16)


def holes_ms(x: np.ndarray) -> list[float]:
    gaps = np.diff(np.flatnonzero(np.abs(x) > 1e-6))
    return [float(g) / RATE * 1000 for g in gaps[gaps > RATE * 0.002]]


def find(x: np.ndarray, wanted: np.ndarray) -> int:
    """Where `wanted` begins in `x`, -1 if nowhere."""
    first = np.flatnonzero(x == wanted[0])
    return next((int(a) for a in first if np.array_equal(x[a:a + len(wanted)], wanted)), -1)


def test_the_file_is_what_was_played(player):
    """I1: bit for bit, true header, Range, and the states on the way."""
    player.say("seconds=2")
    player.until("done")
    wav = result(player)
    assert len(wav) == 2 * RATE
    assert np.array_equal(s16(player.rendered()[:len(wav)]), wav)
    url = f"{player.url}/tts/result/{player.js('KK.player.job')}.wav"
    part = player.page.context.request.get(url, headers={"Range": "bytes=40-99"})
    assert part.status == 206 and len(part.body()) == 60
    states = player.js("states")
    asked = states.index("requesting")
    assert set(states[:asked]) <= {"cold", "warm"} and states[asked - 1] == "warm" and states[-1] == "done" and {"playing", "draining"} & set(states)
    assert player.js("KK.player.played") == 2, "the head stands at the end, where the ring has put it"
    c = player.counters
    assert (c["rendered"], c["underruns"], c["missing"]) == (2 * RATE, 0, 0)
    assert 0 < c["firstRenderedMs"] <= c["firstAudibleMs"] + 1
    told = player.js("done.at(-1)")
    assert told["job"] == player.js("KK.player.job") and told["state"] == "done" and told["gaps"] == 0 and told["first"] > 0
    assert player.js("KK.fields['kk-seed']") == "1"


def test_a_slow_engine_pauses_seldom_and_long(player):
    """J2: no hole shorter than 50 ms, each one counted, nothing lost."""
    player.say("rtf=1.3 chunk=0.2 seconds=4")
    player.until("done")
    gaps, c = holes_ms(player.rendered()), player.counters
    assert 1 <= len(gaps) <= 4 and min(gaps) >= 50
    assert c["underruns"] == len(gaps) and c["rendered"] == 4 * RATE
    assert player.js("states").count("done") == 1 and player.js("KK.player.meter.under") == len(gaps)


def test_a_blocked_page_costs_no_sound(player):
    """J3: the main thread is not in the data path."""
    player.say("rtf=0.2 first=0.2 chunk=0.2 seconds=2.5")
    player.until("playing")
    for _ in range(3):
        player.js("() => { const end = performance.now() + 500; while (performance.now() < end); }")
    player.until("done")
    c = player.counters
    assert c["missing"] <= RATE * 0.01 and c["rendered"] == 2.5 * RATE


def test_a_suspended_context_loses_nothing(player):
    """S2, and the bar asks for a tap meanwhile."""
    player.say("seconds=2")
    player.until("playing", "draining")
    player.js("KK.player.output.ctx.suspend()")
    player.until("locked")
    played = player.counters["played"]
    time.sleep(0.8)
    assert player.counters["played"] <= played + RATE / 2
    player.page.click(".kk-go")  # the tap; it must not be taken for "Stop"
    player.until("done")
    c = player.counters
    assert c["rendered"] == 2 * RATE and c["underruns"] == 0


def test_cancel_fades_and_keeps_what_came(player, studio):
    player.say("rtf=0.5 first=0.2 chunk=0.1 seconds=20")
    player.until("playing")
    player.plays_on(0.3)
    player.page.keyboard.press("Escape")
    player.js("KK.acts.stop()")
    player.until("cancelled")
    player.plays_on(0.2)
    x = player.rendered()
    last = np.flatnonzero(np.abs(x) > 1e-6)[-1] + 1
    assert len(x) - last > RATE * 0.05  # silence now
    assert np.abs(x[last - 60:last]).max() < 0.1 < np.abs(x[last - 1200:last - 700]).max()  # 30 ms fade, no click
    assert float(player.js("KK.player.info.s")) > 0.2
    with player.page.expect_download() as told:
        player.page.click("[data-do=save]")
    wav = wav_samples(told.value.path().read_bytes())
    assert abs(len(wav) / RATE - player.js("KK.player.peaks.length") / 100) < 0.02
    assert b"AI-generated" in told.value.path().read_bytes()[:200]
    assert np.array_equal(s16(x[:2000]), wav[:2000])


def test_pressed_ten_times_one_voice_speaks(player, studio):
    """C2: every generator is closed, and nothing old sounds after the new start."""
    before = studio.state()
    for i in range(10):
        player.say("rtf=0.1 chunk=0.1 seconds=1", seed=20 + i)
        time.sleep(0.12)
    player.until("done")
    wav, x = result(player), s16(player.rendered())
    at = find(x, wav)
    assert at >= 0 and not x[at + len(wav):].any()
    told = studio.state()
    assert told["opened"] - before["opened"] == told["finalised"] - before["finalised"]


def test_pause_plays_every_sample_once(player):
    player.say("seconds=1.5")
    player.until("playing", "draining")
    player.js("KK.player.pause()")
    player.until("paused")
    player.plays_on(0.5)
    held = player.counters["played"]
    player.plays_on(0.4)
    assert player.counters["played"] == held
    player.js("KK.player.pause(false)")
    player.until("done")
    gaps = holes_ms(player.rendered())
    assert len(gaps) == 1 and gaps[0] > 300
    c = player.counters
    assert c["rendered"] == 1.5 * RATE and c["underruns"] == 0 and c["missing"] == 0


def test_seek_back_and_replay(player):
    player.say("seconds=4")
    player.until("draining")
    player.plays_on(0.4)
    player.js("KK.player.seek(3.5)")
    player.until("done")
    assert RATE * 0.5 <= player.counters["rendered"] < RATE * 3.2
    wav, x = result(player), s16(player.rendered())
    assert find(x, wav[int(3.6 * RATE):]) >= 0
    player.js("tape.port.postMessage('again')")
    player.page.click("[data-do=toggle]")  # play it once more
    player.page.wait_for_function("KK.player.sounding")
    assert player.js("KK.player.state") == "done"
    player.page.wait_for_function(f"!KK.player.sounding && KK.player.counters.played >= {4 * RATE}")
    assert find(s16(player.rendered()), wav[200:]) >= 0


def test_play_after_the_end_begins_anew(player):
    """However long before the end the clock was last asked for the place."""
    player.js("() => { const real = KK.player.position; KK.player.position = () => KK.player.sounding ? KK.player.played = 1.5 : real(); }")
    player.say("seconds=2")
    player.until("done")
    assert player.js("KK.player.played") == 2
    player.js("tape.port.postMessage('again')")
    player.page.click("[data-do=toggle]")
    player.page.wait_for_function("KK.player.sounding")
    player.page.wait_for_function(f"!KK.player.sounding && KK.player.counters.played >= {2 * RATE}")
    assert find(s16(player.rendered()), result(player)[200:]) >= 0


def test_keys_and_clicks_seek_within_what_came(player):
    player.say("seconds=3")
    player.until("draining")
    player.page.focus(".kk-canvas")
    player.page.keyboard.press("End")
    player.until("done")
    player.page.keyboard.press("Home")
    assert player.js("KK.player.position()") == 0
    player.page.keyboard.press("ArrowRight")
    assert player.js("KK.player.position()") == 2
    box = player.page.locator(".kk-canvas").bounding_box()
    player.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    assert abs(player.js("KK.player.position()") - 1.5) < 0.1
    assert player.page.get_attribute(".kk-canvas", "aria-valuenow") in ("1", "2")


def test_another_rate_is_resampled(chrome, studio):
    """A browser that refuses 24 kHz: the worker resamples; the tone stays a tone of the same pitch and length."""
    context = chrome.new_context()
    context.add_init_script("const A = AudioContext; window.AudioContext = class extends A { constructor(o) { super({...o, sampleRate: 48000}); } };")
    p = Player(context, studio.url)
    p.warm()
    p.say("seconds=1")
    p.until("done")
    x, wav = p.rendered(), result(p)
    assert p.counters["rendered"] == 2 * RATE
    a, b = x[2000:2 * RATE - 2000:2], wav[1000:RATE - 1000] / 32768
    n = min(len(a), len(b))
    assert np.abs(a[:n] - b[:n]).max() < 0.01
    context.close()


def test_no_gesture_no_loss(chrome, studio):
    """S1: asked for through the raw debugger, which is no gesture; one tap and all of it sounds."""
    context = chrome.new_context()
    p = Player(context, studio.url, is_touched=False)
    raw = p.raw
    assert raw("navigator.userActivation.hasBeenActive") is False
    raw(f"KK.player.start({{input: 'One tone.', voice: '{p.voice}', mode: 'instruct', consent: true, seed: 1, instructions: 'seconds=1'}})")
    for _ in range(200):
        if raw("KK.player.state") == "locked":
            break
        time.sleep(0.02)
    assert raw("KK.player.state") == "locked" and raw("KK.player.counters.rendered") == 0
    assert raw("document.querySelector('.kk-golabel').textContent") == raw("KK.t('bar.tap')")
    p.page.click(".kk-go")
    p.until("done")
    assert p.counters["rendered"] == RATE and p.counters["underruns"] == 0
    context.close()
