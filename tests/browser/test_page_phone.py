"""The page in a hand and over a slow line: text and Generate first, no word of dragging, nothing
shown before it works, nothing fetched that is not used.
"""

from __future__ import annotations

import re

import pytest

from .modules import EXPORTS
from .studio_page import StudioPage

pytestmark = pytest.mark.browser
SLOW = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 50 * 1024,
    "uploadThroughput": 50 * 1024,
}
DRAGGING = re.compile(r"拖|\bdrag|\bdrop (a|your|audio|clear)", re.I)
WORDS = """() =>
      [
        document.body.innerText,
        ...[...document.querySelectorAll("#kk-app :is([placeholder], [aria-label], [title])")]
          .filter(e => e.checkVisibility())
          .flatMap(e => [e.placeholder, e.ariaLabel, e.title])
      ].join("\\n")"""
# what is seen the moment Generate is: its text, and whether a press does something
FIRST_SIGHT = """(() => {
      const look = () => {
        const go = document.querySelector("#kk-player .kk-go");
        if (!go?.checkVisibility({ visibilityProperty: true })) return requestAnimationFrame(look);
        window.firstSight = {
          text: document.querySelector("#kk-text textarea")?.value,
          ms: performance.now()
        };
      };
      requestAnimationFrame(look);
    })()"""


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_phone_shows_text_and_generate_first_and_the_voice_in_one_line(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang, size="phone", is_mobile=True) as p:
        voice, text, bar = (
            p.page.locator(q).bounding_box()
            for q in ("#kk-voice", "#kk-text textarea", "#kk-player")
        )
        assert text["y"] + text["height"] < bar["y"] < 844, "both on the first screen"
        assert voice["height"] <= 60
        name = p.js("KK.voiceName(KK.voiceNow().voice)")
        assert name in p.page.inner_text("#kk-voice")
        fold = p.page.get_by_role("button", name="更换" if lang == "zh" else "Change", exact=True)
        assert fold.bounding_box()["height"] >= 40
        assert p.violations() == []
        page_words = p.js(WORDS)
        fold.tap()
        p.page.wait_for_selector("#kk-ref .kk-drop")
        assert p.page.get_attribute("#kk-voice .kk-fold", "aria-expanded") == "true"
        assert p.js("document.activeElement.matches('.kk-fold')"), "the focus stays"
        page_words += p.js(WORDS)
        assert p.violations() == []
        for tab in p.page.get_by_role("tab").all():
            tab.tap()
            p.page.wait_for_timeout(200)
            page_words += p.js(WORDS)
        assert [line for line in page_words.splitlines() if DRAGGING.search(line)] == []
        assert not p.errors


def test_on_a_slow_line_what_is_seen_works_and_nothing_idle_is_fetched(chrome, studio):
    """A press before the page is there is kept, and done."""
    context = chrome.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page, fetched = context.new_page(), {}
    page.set_default_timeout(120000)
    line = context.new_cdp_session(page)
    line.send("Network.enable")
    line.send("Network.emulateNetworkConditions", SLOW)
    line.on(
        "Network.requestWillBeSent",
        lambda e: fetched.setdefault(e["requestId"], [e["request"]["url"], 0]),
    )
    line.on(
        "Network.loadingFinished",
        lambda e: fetched.get(e["requestId"], [0, 0]).__setitem__(1, e["encodedDataLength"]),
    )
    page.add_init_script(EXPORTS + FIRST_SIGHT)
    page.goto(f"{studio.url}/?lang=zh", wait_until="commit")
    page.wait_for_function("window.KK?.live?.player")
    assert not page.evaluate("window.firstSight || document.documentElement.dataset.kk")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("['playing', 'draining', 'done'].includes(KK.player.state)")
    assert page.evaluate("firstSight.text === KK.t('ex.1')"), (
        "the first text is there before Generate is"
    )
    page.wait_for_function("KK.player.counters?.firstAudibleMs > 0")
    sizes = {url.rpartition("/")[2]: n for url, n in fetched.values() if "/gradio_api/" not in url}
    assert sum(sizes.values()) < 500_000, sizes
    assert not [name for name in sizes if "hls" in name], "no player of Gradio's is fetched"
    assert not context.pages[1:]
    # once more: the page is known, and so is each of its files
    fetched.clear()
    page.reload(wait_until="commit")
    page.wait_for_function("document.documentElement.dataset.kk === 'ready'")
    sizes_by_url = {url: n for url, n in fetched.values() if "/assets/" in url or "lang=zh" in url}
    assert sum(sizes_by_url.values()) < 10_000, sizes_by_url
    context.close()
