"""The page says which part of a clip is used, and uses a transcript only where its tick says that
it is of exactly that part.
"""

from __future__ import annotations

import pytest

from tests.voice_like import file_of, voice_like

from .studio_page import StudioPage, browser

pytestmark = pytest.mark.browser
WORDS = "大家好，这是一段用来测试的录音，希望你喜欢这个声音，谢谢大家来听我说话。"
TICK = "#kk-fits"


@pytest.fixture(scope="module")
def chrome():
    with browser() as b:
        yield b


def part_in_use(p: StudioPage) -> str:
    return p.page.inner_text("#kk-health .kk-striprow span")


def is_ticked(p: StudioPage) -> bool:
    return p.page.is_checked(TICK)


def write(p: StudioPage, words: str = WORDS) -> None:
    p.page.fill("#kk-transcript textarea", words)
    p.page.wait_for_selector(TICK if words else "#kk-fit p", state="attached")


def speak_take(p: StudioPage, n: int) -> tuple[str, dict]:
    """The transcript that was sent, and the n-th take."""
    p.go()
    take = p.wait_takes(n)[0]  # the player may still show that the take before is done
    p.until("done")
    return p.js("KK.lastParams.transcript"), take


def test_another_part_empties_the_tick_and_its_words_count_when_it_is_set_again(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in(file_of(voice_like(14, rate=16000)))
        assert "使用整段" in part_in_use(p)
        assert "一字不差" in p.page.inner_text("#kk-fit") and not p.page.locator(TICK).count()
        write(p)
        assert is_ticked(p), "who writes down the whole clip need not say so"
        p.consent()
        p.page.fill("#kk-text textarea", "好的。")
        words, take = speak_take(p, 1)
        assert (words, take["mode"], take["voice_notes"]) == (WORDS, "zero_shot", [])

        p.page.click("#kk-health [data-do=window][data-i='0']")
        start, end = p.js("[KK.draft().start_s, KK.draft().end_s]")
        assert "使用第 1 段" in part_in_use(p) and not is_ticked(p)
        assert f"{start:.1f}–{end:.1f} 秒" in p.page.inner_text("#kk-fit")
        assert "按跨语种复刻合成" in p.page.inner_text("#kk-fit")
        words, take = speak_take(p, 2)
        assert (words, take["mode"]) == ("", "cross_lingual")
        assert "没有参考文本" in p.page.inner_text("#kk-takes .kk-voicenote >> nth=0")

        write(p, WORDS[:20])
        assert not is_ticked(p), "of a part they are its words only when somebody says so"
        p.page.check(TICK)
        words, take = speak_take(p, 3)
        assert (words, take["mode"]) == (WORDS[:20], "zero_shot")

        p.page.click("#kk-health [data-do=whole]")
        assert "使用整段" in part_in_use(p) and not is_ticked(p)
        assert p.page.input_value("#kk-transcript textarea") == WORDS[:20], (
            "and nothing typed is lost"
        )
        assert not p.page.locator("#kk-health [data-do=whole]").count() and not p.errors


def test_edges_and_cures_that_change_the_part_empty_the_tick_too(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        p.clip_in(file_of(voice_like(8, rate=16000)))
        write(p)
        p.page.evaluate("document.querySelector('.kk-details').open = true")
        p.page.focus("[data-edge=end]")
        p.page.keyboard.press("Shift+ArrowLeft")
        p.page.wait_for_function("!document.querySelector('#kk-fits').checked")
        assert "without this tick" in p.page.inner_text("#kk-fit").lower()
        p.page.check(TICK)
        p.page.click("#kk-fit label")
        assert not is_ticked(p) and p.js("document.activeElement.id") == "kk-fits"
        write(p, "")
        assert "as a cross-lingual clone" in p.page.inner_text("#kk-fit")
        assert p.js("KK.live.health.ui.fits") is False and not p.errors


def test_of_a_clip_over_30_s_a_part_is_proposed_and_its_words_are_asked_for(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        p.clip_in(file_of(voice_like(34, rate=16000)))
        assert "In use: part 1" in part_in_use(p)
        assert "at most 30 s can be used" in p.page.inner_text("#kk-health")
        assert not p.page.locator("#kk-health [data-do=whole]").count()
        write(p)
        assert not is_ticked(p)
        p.page.evaluate("document.querySelector('.kk-details').open = true")
        p.js(
            """() => { const edge = document.querySelector("[data-edge=end]"), start = KK.draft();
            edge.value = 34; edge.dispatchEvent(new Event("change", {bubbles: true})); }"""
        )
        p.page.wait_for_function("KK.draft().end_s > 33 && !KK.live.health.pending")
        assert p.js("KK.draft().end_s - KK.draft().start_s") <= 30.001 and not p.errors
