"""What leaves the ring, sample by sample: starts, stalls, pauses, seeks, cancels, suspensions.

Real studio, tone engine, real Chromium.

first=1: the engine's first piece lasts a second, so that what is asked of the player does not
depend on when a busy machine brings the next.
"""

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
    return wav_samples(
        p.page.context.request.get(f"{p.url}/tts/result/{p.js('KK.player.job')}.wav").body()
    )


def s16(x: np.ndarray) -> np.ndarray:
    return np.round(x * 32768).astype(np.int16)


def holes_ms(x: np.ndarray) -> list[float]:
    gaps = np.diff(np.flatnonzero(np.abs(x) > 1e-6))
    return [float(g) / RATE * 1000 for g in gaps[gaps > RATE * 0.002]]


def find(x: np.ndarray, needle: np.ndarray) -> int:
    """Where `wanted` begins in `x`, -1 if nowhere."""
    first = np.flatnonzero(x == needle[0])
    return next((int(a) for a in first if np.array_equal(x[a : a + len(needle)], needle)), -1)


def plays_again(p: Player) -> None:
    """A press on Play; it may be over by the time anybody looks."""
    p.js(
        "() => { window.sounded = false; document.addEventListener('kk:player', () => { sounded ||="
        " KK.player.sounding; }); }"
    )
    p.page.click("[data-do=toggle]")
    p.page.wait_for_function("window.sounded")


def test_the_file_is_what_was_played(player):
    """I1: bit for bit, true header, Range, and the states on the way."""
    player.say("seconds=2 first=1")
    player.until("done")
    wav = result(player)
    assert len(wav) == 2 * RATE
    assert np.array_equal(s16(player.rendered()[: len(wav)]), wav)
    url = f"{player.url}/tts/result/{player.js('KK.player.job')}.wav"
    part = player.page.context.request.get(url, headers={"Range": "bytes=40-99"})
    assert part.status == 206 and len(part.body()) == 60
    states = player.js("states")
    request_index = states.index("requesting")
    assert (
        set(states[:request_index]) <= {"cold", "warm"}
        and states[request_index - 1] == "warm"
        and states[-1] == "done"
        and {"playing", "draining"} & set(states)
    )
    assert player.js("KK.player.played") == 2, (
        "the head stands at the end, where the ring has put it"
    )
    c = player.counters
    assert (c["rendered"], c["underruns"], c["missing"]) == (2 * RATE, 0, 0)
    assert 0 < c["firstRenderedMs"] <= c["firstAudibleMs"] + 1
    summary = player.js("done.at(-1)")
    assert (
        summary["job"] == player.js("KK.player.job")
        and summary["state"] == "done"
        and summary["gaps"] == 0
        and summary["first"] > 0
    )
    assert player.js("fields['kk-seed']") == "1"


def test_a_slow_engine_pauses_seldom_and_long(player):
    """J2: no hole shorter than 50 ms, each one counted, nothing lost."""
    player.say("rtf=1.3 chunk=0.2 seconds=4")
    player.until("done")
    gaps, c = holes_ms(player.rendered()), player.counters
    assert 1 <= len(gaps) <= 4 and min(gaps) >= 50
    assert c["underruns"] == len(gaps) and c["rendered"] == 4 * RATE
    assert player.js("states").count("done") == 1 and player.js("KK.player.meter.under") == len(
        gaps
    )


def test_an_engine_at_four_fifths_of_real_time_is_heard_with_its_first_piece(player):
    """The piece, 0.55 s, lasts longer than the next one takes to make: the ring is told to want no
    more than that.
    """
    player.page.route(
        "**/v1/audio/speech",
        lambda route: route.fulfill(
            headers={"X-RTF": "0.8", "X-Audio-Format": "s16le;rate=24000", "X-Job-Id": "j"},
            body=bytes(2 * int(0.55 * RATE)),
        ),
    )
    needs = player.js(
        """() =>
          new Promise(done => {
            const worker = new Worker(`${files}/player/transport.js`, { type: "module" }),
              { port1, port2 } = new MessageChannel(),
              needs = [];
            port1.onmessage = e => {
              if (e.data.need) needs.push(e.data.need);
              if (e.data.op === "end") done(needs);
            };
            worker.onmessage = e => {
              if (e.data.ev === "session") {
                worker.postMessage({ op: "port", port: port2, rate: 24000 }, [port2]);
                worker.postMessage({ op: "start", seq: 1, turn: 1, params: {} });
              }
            };
            worker.postMessage({
              op: "open",
              root: KK.studioUrl(),
              via: "fetch",
              locale: "en",
              age_ms: 0
            });
          })"""
    )
    assert 128 < needs[-1] < 0.55 * RATE


def test_no_hole_is_short_and_the_end_comes_with_its_figures(player):
    """The ring alone, on a clock that stands still while it is fed: ten milliseconds after it ran
    dry it is given the rest.
    """
    x, events = player.js("""async () => {
          const ctx = new OfflineAudioContext(1, 24000, 24000);
          await ctx.audioWorklet.addModule(`${files}/player/worklet.js`);
          const node = new AudioWorkletNode(ctx, "kk-ring", {
              numberOfInputs: 0,
              outputChannelCount: [1]
            }),
            { port1, port2: feed } = new MessageChannel(),
            told = [];
          const quiet = () => new Promise(r => setTimeout(r, 200)),
            tone = n => new Float32Array(n).fill(0.5);
          node.port.onmessage = e => told.push([e.data.ev, e.data.rendered]);
          node.port.postMessage({ op: "feed", port: port1 }, [port1]);
          node.connect(ctx.destination);
          await quiet();
          feed.postMessage({
            op: "start",
            turn: 1,
            at: 0,
            keep: false,
            need: 128,
            slow: false,
            hold: false
          });
          feed.postMessage({ op: "data", turn: 1, pcm: tone(4800) });
          await quiet();
          ctx.suspend(0.21).then(async () => {
            feed.postMessage({ op: "data", turn: 1, pcm: tone(9600) });
            feed.postMessage({ op: "end", turn: 1 });
            await quiet();
            ctx.resume();
          });
          const x = [...(await ctx.startRendering()).getChannelData(0)];
          await quiet();
          return [x, told];
        }""")
    gaps = holes_ms(np.array(x))
    assert len(gaps) == 1 and 50 <= gaps[0] < 100
    assert [ev for ev, _ in events if ev != "counters"] == [
        "first",
        "audible",
        "stall",
        "go",
        "drained",
    ]
    assert events[[ev for ev, _ in events].index("drained") - 1] == ["counters", 14400]


def test_a_blocked_page_costs_no_sound(player):
    """J3: the main thread is not in the data path."""
    player.say("rtf=0.5 first=1 chunk=0.2 seconds=5")
    player.until("playing")
    for _ in range(3):
        player.js("() => { const end = performance.now() + 500; while (performance.now() < end); }")
    player.until("done")
    c = player.counters
    assert c["missing"] <= RATE * 0.01 and c["rendered"] == 5 * RATE


def test_a_suspended_context_loses_nothing(player):
    """S2, and the bar asks for a tap meanwhile."""
    player.as_soon_as("draining", "KK.player.output.ctx.suspend()")
    player.say("seconds=2 first=1")
    player.until("locked")
    played = player.counters["played"]
    time.sleep(0.8)
    assert player.counters["played"] <= played + RATE / 2
    player.page.click(".kk-go")  # the tap; it must not be taken for "Stop"
    player.until("done")
    c = player.counters
    assert c["rendered"] == 2 * RATE and c["underruns"] == 0


def test_cancel_fades_and_keeps_what_came(player, studio):
    player.say("rtf=0.5 first=1 chunk=0.1 seconds=20")
    player.until("playing")
    player.plays_on(0.3)
    player.page.keyboard.press("Escape")
    player.js("KK.acts.stop()")
    player.until("cancelled")
    player.plays_on(0.2)
    x = player.rendered()
    last = np.flatnonzero(np.abs(x) > 1e-6)[-1] + 1
    assert len(x) - last > RATE * 0.05  # silence now
    assert (
        np.abs(x[last - 60 : last]).max() < 0.1 < np.abs(x[last - 1200 : last - 700]).max()
    )  # 30 ms fade, no click
    assert player.js("KK.player.peaks.length") > 20  # of a hundred a second
    with player.page.expect_download() as download:
        player.page.click("[data-do=save]")
    wav = wav_samples(download.value.path().read_bytes())
    assert abs(len(wav) / RATE - player.js("KK.player.peaks.length") / 100) < 0.02
    assert b"AI-generated" in download.value.path().read_bytes()[:200]
    assert np.array_equal(s16(x[:2000]), wav[:2000])


def test_pressed_ten_times_one_voice_speaks(player, studio):
    """C2: every generator is closed, and nothing old sounds after the new start."""
    before = studio.state()
    for i in range(10):
        player.say("rtf=0.1 first=0.5 chunk=0.1 seconds=1", seed=20 + i)
        time.sleep(0.12)
    player.until("done")
    wav, x = result(player), s16(player.rendered())
    at = find(x, wav)
    assert at >= 0 and not x[at + len(wav) :].any()
    for _ in range(500):  # the last that was cut off may be on its way out
        state = studio.state()
        if state["opened"] - before["opened"] == state["finalised"] - before["finalised"]:
            break
        time.sleep(0.02)
    assert state["opened"] - before["opened"] == state["finalised"] - before["finalised"]


def test_pause_plays_every_sample_once(player):
    player.as_soon_as("draining", "KK.player.pause()")
    player.say("seconds=1.5 first=1")
    player.until("paused")
    player.plays_on(0.5)
    n_played = player.counters["played"]
    player.plays_on(0.4)
    assert player.counters["played"] == n_played
    player.js("KK.player.pause(false)")
    player.until("done")
    gaps = holes_ms(player.rendered())
    assert len(gaps) == 1 and gaps[0] > 300
    c = player.counters
    assert c["rendered"] == 1.5 * RATE and c["underruns"] == 0 and c["missing"] == 0


def test_seek_back_and_replay(player):
    player.as_soon_as(
        "draining", "setTimeout(() => { window.sought = true; KK.player.seek(3.5); }, 400)"
    )
    player.say("seconds=4 first=1")
    player.page.wait_for_function("window.sought")
    player.until("done")
    assert RATE * 0.5 <= player.counters["rendered"] < RATE * 3.2
    wav, x = result(player), s16(player.rendered())
    assert find(x, wav[int(3.6 * RATE) :]) >= 0
    player.js("tape.port.postMessage('again')")
    plays_again(player)
    assert player.js("KK.player.state") == "done"
    player.page.wait_for_function(f"!KK.player.sounding && KK.player.counters.played >= {4 * RATE}")
    assert find(s16(player.rendered()), wav[200:]) >= 0


def test_play_after_the_end_begins_anew(player):
    """However long before the end the clock was last asked for the place."""
    player.js(
        "() => { const real = KK.player.position; KK.player.position = () => KK.player.sounding ?"
        " KK.player.played = 1.5 : real(); }"
    )
    player.say("seconds=2")
    player.until("done")
    assert player.js("KK.player.played") == 2
    player.js("tape.port.postMessage('again')")
    plays_again(player)
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
    player.page.wait_for_function(
        "KK.player.total === 3"
    )  # the scale has come down from what was predicted
    box = player.page.locator(".kk-canvas").bounding_box()
    player.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 10)
    assert abs(player.js("KK.player.position()") - 1.5) < 0.1
    assert player.page.get_attribute(".kk-canvas", "aria-valuenow") in ("1", "2")


def test_another_rate_is_resampled(chrome, studio):
    """A browser that refuses 24 kHz: the worker resamples; the tone stays a tone of the same pitch
    and length.
    """
    context = chrome.new_context()
    context.add_init_script(
        "const A = AudioContext; window.AudioContext = class extends A { constructor(o) {"
        " super({...o, sampleRate: 48000}); } };"
    )
    p = Player(context, studio.url)
    p.warm()
    p.say("seconds=1 first=1")
    p.until("done")
    x, wav = p.rendered(), result(p)
    assert p.counters["rendered"] == 2 * RATE
    a, b = x[2000 : 2 * RATE - 2000 : 2], wav[1000 : RATE - 1000] / 32768
    n = min(len(a), len(b))
    assert np.abs(a[:n] - b[:n]).max() < 0.01
    context.close()


def test_no_gesture_no_loss(chrome, studio):
    """S1: asked for through the raw debugger, which is no gesture; one tap and all of it sounds."""
    context = chrome.new_context()
    p = Player(context, studio.url, is_touched=False)
    raw = p.raw
    assert raw("navigator.userActivation.hasBeenActive") is False
    raw(
        f"KK.player.start({{input: 'One tone.', voice: '{p.voice}', mode: 'instruct', consent:"
        " true, seed: 1, instructions: 'seconds=1 first=1'})"
    )
    for _ in range(1500):
        if raw("KK.player.state") == "locked":
            break
        time.sleep(0.02)
    assert raw("KK.player.state") == "locked" and raw("KK.player.counters.rendered") == 0
    assert raw("document.querySelector('.kk-golabel').textContent") == raw("KK.t('bar.tap')")
    p.page.click(".kk-go")
    p.until("done")
    assert p.counters["rendered"] == RATE and p.counters["underruns"] == 0
    context.close()
