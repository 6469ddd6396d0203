"""The way the samples come: socket, credit, holes, broken sockets, proxies, the plain HTTP
fallback, and sentences about failures.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from .harness import GESTURES_NEEDED, RATE, Player, browser, wav_samples
from .proxy import Proxy

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chrome():
    with browser(GESTURES_NEEDED) as b:
        yield b


@pytest.fixture(scope="module")
def proxy(studio):
    with Proxy(studio.url, "/voice").running() as p:
        yield p


@pytest.fixture
def player(chrome, proxy):
    """A page behind the proxy, under its sub-path."""
    proxy.is_down = proxy.refuses_upgrades = proxy.cuts_next = False
    proxy.drop_frames = proxy.spared_frames = 0
    context = chrome.new_context()
    p = Player(context, proxy.url)
    p.warm()
    yield p
    context.close()


def whole(p: Player) -> bool:
    """Everything that sounded is the finished file, bit for bit."""
    wav = wav_samples(
        p.page.context.request.get(f"{p.url}/tts/result/{p.js('KK.player.job')}.wav").body()
    )
    return np.array_equal(np.round(p.rendered()[: len(wav)] * 32768).astype(np.int16), wav)


def test_sub_path_and_proxy(player, proxy):
    """L3: one socket for the page, kept for the next stream; nothing of it is held back."""
    before = proxy.upgrades
    for _ in range(2):
        player.say("seconds=0.5 first=0.5")
        player.until("done")
    assert proxy.upgrades == before and player.js("KK.player.via") == "ws"
    assert player.counters["rendered"] == RATE / 2 and player.counters["underruns"] == 0


def test_a_broken_socket_is_resumed_without_a_hole(player, proxy):
    proxy.spared_frames, proxy.cuts_next = 10, True  # after a second of sound, before the fourth
    player.say("rtf=0.3 first=0.3 chunk=0.1 seconds=4")
    player.until("done")
    assert "reconnect" in player.js("states") and not proxy.cuts_next
    c = player.counters
    assert c["rendered"] == 4 * RATE
    assert c["underruns"] or whole(player)


def test_a_lost_frame_is_noticed_and_fetched_again(player, proxy):
    proxy.spared_frames, proxy.drop_frames = 10, 1
    player.say("rtf=0.3 first=0.3 chunk=0.1 seconds=4")
    player.until("done")
    assert not proxy.drop_frames
    assert player.counters["rendered"] == 4 * RATE
    assert player.counters["underruns"] or whole(player)


def test_a_socket_that_never_opens_means_fallback(chrome, proxy):
    proxy.refuses_upgrades = True
    context = chrome.new_context()
    p = Player(context, proxy.url)
    p.warm()
    assert p.js("KK.player.via") == "fetch"
    p.say("seconds=1 first=1")
    p.until("done")
    assert p.counters["rendered"] == RATE and whole(p)
    assert p.js("fields['kk-seed']") == "1" and p.js("done.at(-1).job")
    context.close()
    proxy.refuses_upgrades = False


def test_fallback_cancel_closes_the_generator(chrome, studio):
    context = chrome.new_context()
    p = Player(context, studio.url, "?transport=fetch")
    p.warm()
    p.say("rtf=0.5 first=0.2 chunk=0.05 seconds=20")
    p.until("playing")
    p.page.click(".kk-go")
    p.until("cancelled")
    wait_until(lambda: is_quiet(studio))
    context.close()


def test_a_burst_is_held_by_credit(chrome, studio):
    """B1: lead plus one chunk, whatever the engine could do; then the rest comes as it is
    played.
    """
    context = chrome.new_context()
    p = Player(context, studio.url)
    p.warm()
    p.say("chunk=0.2 seconds=600")
    p.until("playing")
    p.js("KK.player.output.ctx.suspend()")
    p.page.wait_for_function(
        "rate => KK.player.peaks.length / 100 - KK.player.counters.played / rate > 13", arg=RATE
    )
    actual, before = p.js("KK.player.peaks.length / 100"), -1.0
    while actual != before:  # until no more comes
        time.sleep(0.5)
        actual, before = p.js("KK.player.peaks.length / 100"), actual
    ahead = actual - p.counters["played"] / RATE
    assert 13 < ahead <= 15.5
    time.sleep(0.5)
    assert p.js("KK.player.peaks.length / 100") == actual
    p.js("KK.player.output.ctx.resume()")
    p.page.wait_for_function("n => KK.player.peaks.length / 100 > n", arg=actual)
    p.js("KK.player.stop()")
    wait_until(lambda: is_quiet(studio))
    context.close()


def test_a_closed_tab_and_a_pulled_cable_close_the_generator(chrome, studio, proxy):
    """C1, the server's half."""
    for act in ("close", "cut"):
        context = chrome.new_context()
        p = Player(context, proxy.url)
        p.warm()
        p.say("rtf=0.5 first=0.2 chunk=0.05 seconds=60")
        p.until("playing")
        if act == "close":
            p.page.close()
        else:
            proxy.is_down = True
            proxy.cut()
        wait_until(lambda: is_quiet(studio))
        proxy.is_down = False
        context.close()


def test_eight_tabs_at_once(chrome, studio):
    """M1: sockets are not counted among the six connections."""
    context = chrome.new_context()
    tabs = [Player(context, studio.url)]
    tabs += [Player(context, studio.url, voice=tabs[0].voice) for _ in range(7)]
    for i, p in enumerate(tabs):
        p.page.bring_to_front()
        p.warm()
        p.as_soon_as(
            "draining", "setTimeout(() => KK.player.pause(), 6000)"
        )  # all that is made is there; it must not be over before the last one sounds
        p.say("rtf=0.02 first=0.2 seconds=14", seed=50 + i)
    for p in tabs:
        p.page.wait_for_function("KK.player.counters.rendered > 0")
    assert all(p.js("KK.player.busy()") for p in tabs)
    context.close()


def test_what_the_engine_cannot_do_is_said(player):
    """The sentence of the server, in the visitor's language, and what came before it stays."""
    player.say("rtf=0.2 first=0.2 chunk=0.2 seconds=10 fail=3")
    player.until("failed")
    text = player.page.text_content("[role=status]")
    assert "Try another seed" in text and player.page.get_attribute(".kk-bar", "data-tone") == "bad"
    assert player.page.text_content(".kk-golabel") == player.js("KK.t('bar.retry')")
    assert player.page.text_content("[data-do=second]") == player.js("KK.t('bar.builtin')")
    assert player.js("KK.player.peaks.length") > 20


def test_language_follows_in_mid_stream(player):
    player.say("chunk=0.2 seconds=40 fail=140")  # 15 s are made ahead, so that the 28th is far
    player.until("playing")
    player.js("KK.useLanguage('zh'); document.dispatchEvent(new CustomEvent('kk:lang'))")
    player.js("KK.player.seek(14.5)")
    player.until("failed")
    assert "换个种子" in player.page.text_content("[role=status]")


def test_nothing_to_say_and_nobody_to_say_it(player):
    player.page.fill("#kk-text textarea", "  ")
    player.say()
    assert player.js("KK.player.state") == "notext"
    player.page.fill("#kk-text textarea", "words")
    player.say(voice="")
    assert player.js("KK.player.state") == "novoice"
    assert player.js("done") == []


def test_slow_machine_says_so_and_can_wait(player):
    """RTF above 1: the factor in words; "play when ready" holds until the rest will not run dry,
    "play now" lets go.
    """
    player.page.fill(
        "#kk-text textarea", "One tone, two tones. " * 40
    )  # what is predicted: it waits for long enough to be looked at
    player.say("rtf=1.5 chunk=0.2 seconds=60")
    player.until("slow")
    assert player.page.text_content("[data-do=second]") == player.js("KK.t('bar.waitmode')")
    player.page.click("[data-do=second]")
    player.page.wait_for_function("KK.player.waiting")
    assert player.page.text_content("[data-do=second]") == player.js("KK.t('bar.playnow')")
    player.page.click("[data-do=second]")
    player.page.wait_for_function("!KK.player.waiting")
    player.js("KK.player.stop()")
    player.until("cancelled")


def is_quiet(studio) -> bool:
    state = studio.state()
    return state["opened"] == state["finalised"]


def wait_until(done, limit_s: float = 5) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)
