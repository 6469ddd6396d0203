"""A take that was stopped or broke: kept in the list, continued from its sentence, by itself when
the engine comes back; two tabs; and what the button beside the player does on each tab.
"""

from __future__ import annotations

import pytest

from .modules import EXPORTS
from .studio_page import StudioPage

pytestmark = pytest.mark.browser
RATE = 24000
TEXT = {
    "zh": "第一句已经读完了。第二句读到一半停下。第三句还没有开始。",
    "en": "The first sentence was read. The second one stopped half way. The third had not begun.",
}


def card(p: StudioPage) -> str:
    return p.page.inner_text(".kk-take >> nth=0")


def go(p: StudioPage) -> None:
    """Over the socket, also where that opened late: what is resumed and what is told go that
    way.
    """
    p.page.wait_for_function("KK.player.via === 'ws'")
    p.go()


def goes_on(p: StudioPage, lang: str) -> None:
    """The one take becomes the whole, in the place of what there was."""
    p.until("done")
    p.page.wait_for_function("KK.live.takes.data[0]?.state === 'done'")
    (take,) = p.takes()
    assert take["n_samples"] == 6 * RATE and take["stopped_at"] is None
    assert p.js("KK.player.peaks.length") == 600
    assert not p.page.is_visible("#kk-player [data-do=second]") and not p.errors


@pytest.mark.parametrize("lang, size", [("zh", "wide"), ("en", "phone")])
def test_a_stopped_take_is_kept_and_goes_on(chrome, studio, lang, size):
    with StudioPage(chrome, studio.url, lang, size=size) as p:
        p.page.fill("#kk-text textarea", TEXT[lang])
        p.instruct("rtf=1 chunk=0.2 seconds=6")
        go(p)
        p.page.wait_for_function("KK.player.info.i === 2")
        p.go()
        (take,) = p.wait_takes(1)
        assert (take["state"], take["stopped_at"]) == ("cancelled", [2, 3])
        words = {"zh": "停在第 2 / 3 句", "en": "stopped at sentence 2 of 3"}[lang]
        assert words in card(p) and p.page.is_visible(".kk-mini")
        p.page.wait_for_function(
            "KK.player.total === KK.player.peaks.length / 100 || Math.abs(KK.player.total -"
            " KK.player.peaks.length / 100) < .02"
        )
        assert "≈" not in p.page.text_content(".kk-time")
        more = p.page.locator("#kk-player [data-do=second]")
        more.wait_for()
        assert more.inner_text() == {"zh": "继续", "en": "Continue"}[lang]
        if size == "phone":
            box = p.page.locator(".kk-take [data-do=continuetake]").bounding_box()
            assert box["height"] >= 40
        assert p.violations() == []
        p.page.locator(".kk-take").scroll_into_view_if_needed()
        if size == "phone":
            p.page.click(".kk-take [data-do=continuetake]")
        else:
            more.click()
        goes_on(p, lang)


def test_a_failed_take_says_why_and_goes_on(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.page.fill("#kk-text textarea", TEXT["zh"])
        p.instruct("rtf=0.3 chunk=0.2 seconds=6 fail=18")
        go(p)
        p.until("failed")
        (take,) = p.wait_takes(1)
        assert (take["state"], take["stopped_at"][0]) == ("failed", 2)
        assert "没有成功：这一句没能合成" in card(p).replace(": ", "：")
        assert "这一句没能合成" in p.status()
        assert p.page.get_attribute(".kk-take", "data-tone") == "bad"
        assert p.js("document.querySelectorAll('.kk-take').length") == 1
        assert p.violations() == []
        p.page.click(".kk-take [data-do=continuetake]")
        p.until("requesting", "priming", "playing", "failed")
        p.page.wait_for_function("KK.player.state === 'failed' && KK.player.peaks.length > 300")
        assert len(p.wait_takes(1)) == 1, "it came no further, and is there once"


def test_a_lost_engine_is_waited_for_and_the_stream_goes_on_by_itself(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        p.js(
            "window.states = []; document.addEventListener('kk:player', () =>"
            " states.push([KK.player.state, document.querySelector('#kk-player"
            " [role=status]').innerText]))"
        )
        p.page.fill("#kk-text textarea", TEXT["en"])
        p.instruct("rtf=0.5 chunk=0.2 seconds=6 lost=17")
        go(p)
        p.page.wait_for_function("states.some(s => s[0] === 'restarting')")
        p.page.wait_for_function("states.some(s => s[1].includes('goes on from sentence 2'))")
        goes_on(p, "en")


def test_one_tab_sounds_and_takes_appear_in_both(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        other = p.context.new_page()
        other.add_init_script(EXPORTS)
        other.goto(f"{studio.url}/?lang=zh")
        ready = (
            "document.documentElement.dataset.kk === 'ready' && KK.live.takes && KK.player.linked"
        )
        other.wait_for_function(ready)
        p.page.fill("#kk-text textarea", TEXT["zh"])
        p.instruct("seconds=30")
        p.page.bring_to_front()
        go(p)
        p.until("playing", "draining")
        other.wait_for_function("KK.live.takes.data.length === 1")
        other.bring_to_front()
        other.click(".kk-take [data-do=playtake]")
        p.until("paused")
        assert p.status() == "另一个标签页在播放，这里已暂停"
        p.page.bring_to_front()
        p.page.click("#kk-player [data-do=toggle]")
        p.until("draining", "playing")
        other.wait_for_function("!KK.sounding(KK.live.takes.data[0].id, 'take')")
        p.js("KK.player.stop()")
        assert not p.errors


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_button_says_what_it_does_and_an_error_stays_on_its_tab(chrome, studio, lang):
    phrases = {
        "zh": ["生成音频", "转换声音", "开始批量", "去合成", "生成的声音在这里播放"],
        "en": ["Generate", "Convert", "Start batch", "Go to Speak", "What you generate plays here"],
    }[lang]
    with StudioPage(chrome, studio.url, lang) as p:
        go, tab = "#kk-player .kk-golabel", "[role=tab][aria-controls=kk-tab-{}]".format
        p.page.fill("#kk-text textarea", "")
        p.go()
        p.until("notext")
        p.page.click(tab("voices"))
        p.page.wait_for_function(
            "s => KK.player.state !== 'notext' && document.querySelector('.kk-golabel').innerText"
            " === s",
            arg=phrases[3],
        )
        assert p.status() == phrases[4] and p.page.get_attribute(".kk-bar", "data-tone") == ""
        assert p.violations() == []
        for name, words in (
            ("convert", phrases[1]),
            ("batch", phrases[2]),
            ("settings", phrases[3]),
        ):
            p.page.click(tab(name))
            p.page.wait_for_function(
                "s => document.querySelector('.kk-golabel').innerText === s", arg=words
            )
        p.go()
        p.page.wait_for_function("KK.tabNow() === 'speak'")
        p.page.wait_for_function(
            "s => document.querySelector('.kk-golabel').innerText === s", arg=phrases[0]
        )
        assert p.page.inner_text(go) == phrases[0] and not p.errors
