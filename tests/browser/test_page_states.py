"""What the page says when things are not as they should be: engine still starting, server gone,
microphone refused, page shared.
"""

from __future__ import annotations

import os

import pytest

from tests.serve import running

from .studio_page import StudioPage, browser, clip

pytestmark = pytest.mark.browser
DENIED = "document.querySelector('#kk-ref [data-tone=warn]')"


@pytest.fixture(scope="module")
def chrome():
    with browser("--use-fake-device-for-media-stream") as b:
        yield b


def test_generate_waits_in_words_while_the_engine_starts(chrome, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with running(fake_gate=gate, wait=False) as studio, StudioPage(chrome, studio.url, "zh") as p:
        assert p.page.get_attribute(".kk-eng", "data-tone") == "work"
        p.page.fill("#kk-text textarea", "好的。")
        p.go()
        p.page.wait_for_function("KK.player.state === 'warming'")
        p.page.wait_for_timeout(300)
        assert p.status() == "引擎启动中，就绪后自动开始…"
        gate.write_text("")  # the engine is ready from here on
        p.until("playing", "draining", "done")
        p.until("done")
        p.wait_takes(1)
        assert p.page.get_attribute(".kk-eng", "data-tone") == "ok"


def test_server_gone_microphone_refused_page_shared(chrome, studio):
    with StudioPage(chrome, studio.url, "zh", permissions=[]) as p:
        p.page.route("**/tts/health", lambda r: r.abort())
        p.js("KK.askEngine()")
        p.page.wait_for_function("document.querySelector('.kk-eng').dataset.tone === 'bad'")
        assert "与服务器断开" in p.page.inner_text(".kk-eng")
        p.page.click("#kk-ref [data-do=soundsource][data-v=mic]")
        p.page.wait_for_function(
            f"{DENIED} || document.querySelector('#kk-ref [data-do=recordclip]')"
        )
        p.js(
            f"() => {{ if (!{DENIED})"
            " document.querySelector('#kk-ref [data-do=recordclip]').click(); }"
        )  # it may be refused, and the button gone, by the time a hand is there
        p.page.wait_for_function(
            "document.querySelector('#kk-ref').innerText.includes('麦克风被拒绝')"
        )
        assert p.violations() == []
        p.js(
            "() => { KK.facts.share = true; KK.live.header.root.innerHTML = '';"
            " KK.draw('header'); }"
        )
        assert "公网链接" in p.page.inner_text(".kk-banner")
        assert p.violations() == []


def test_a_change_of_the_clip_is_heard_even_if_generate_comes_at_once(chrome, studio):
    """The window is moved and Generate pressed before the answer of the server is there: the moved
    part is what speaks.
    """
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in(clip(6))
        p.consent()
        p.page.fill("#kk-text textarea", "好的。")
        first = p.js("KK.draft().id")
        p.js(
            """() => {
              document.querySelector(".kk-details").open = true;
              const e = document.querySelector("[data-edge=start]");
              e.value = 1.5;
              e.dispatchEvent(new Event("change", { bubbles: true }));
              document.querySelector("#kk-player [data-do=go]").click();
            }"""
        )
        p.until("done")
        assert p.js("KK.lastParams.voice") == p.js("KK.draft().id") != first
        assert p.js("KK.draft().start_s") == 1.5
        p.js(
            "KK.send('health', {op: 'change', n: 99, id: 'draft-gone', clip: KK.draft().clip,"
            " window: [0, 3], clean: 0, gain: false, varying: false})"
        )
        p.page.wait_for_function(
            "document.querySelector('#kk-toast')?.innerText.includes('已经不在了')"
        )
        assert p.js("KK.draft().start_s") == 1.5, "a change that failed leaves the card as it was"
