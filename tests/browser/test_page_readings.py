"""How a word is said, and how a clone is told to say it: what the page shows of an engine that
knows readings and follows instructions while it clones.
"""

from __future__ import annotations

import pytest

from .studio_page import StudioPage, browser
from .test_page_engine import BIG, Health, shown

pytestmark = pytest.mark.browser
THIRD = {
    **BIG,
    "engine": "cosyvoice3",
    "told_clones": True,
    "tags": [*BIG["tags"], "[h]", "[uán]", "[R]", "[EH1]", "[D]"],
    "styles": ["happy"],
}


@pytest.fixture(scope="module")
def chrome():
    with browser() as b:
        yield b


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_readings_are_shown_and_put_in_and_wrong_ones_are_caught(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang) as p:
        health = Health(p, BIG)
        p.page.wait_for_selector("[data-do=token]")
        assert not p.page.locator("[data-do=reading]").count(), (
            "an engine without readings has no word of them"
        )
        p.page.fill("#kk-text textarea", "还[h][uán]")
        assert "[h]" in p.page.inner_text(".kk-lint"), "it would read them aloud"
        health.tell(THIRD, "CosyVoice3")
        p.page.click("[data-do=reading]")
        assert (
            p.page.get_attribute("[data-do=reading]", "aria-expanded") == "true"
            and p.page.locator("#kk-reading").is_visible()
        )
        assert (
            p.js("KK.t('reading.zh')") in p.page.inner_text("#kk-reading") and p.violations() == []
        )
        p.page.fill("#kk-text textarea", "小明")
        p.js("() => { const e = KK.field('kk-text'); e.focus(); e.setSelectionRange(2, 2); }")
        p.page.click("#kk-reading [data-v='[h][uán]']")
        p.page.click("#kk-reading [data-v='[R][EH1][D]']")
        assert (
            p.page.input_value("#kk-text textarea") == "小明[h][uán][R][EH1][D]"
            and p.page.inner_text(".kk-lint") == ""
        )
        for wrong in ("[úan]", "[EH9]", "[zz]"):
            p.page.fill("#kk-text textarea", f"小明[h]{wrong}")
            assert wrong in p.page.inner_text(".kk-lint"), wrong
        p.page.click("[data-do=reading]")
        assert not p.page.locator("#kk-reading").count() and not p.errors


def test_an_engine_that_hears_no_clip_offers_its_own_voices_only(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, BIG)
        p.page.wait_for_selector("[data-do=token]")
        p.js("KK.setMode('preset')")
        p.page.wait_for_function("KK.mode() === 'preset' && KK.offered().some(v => v.sample)")
        p.js("KK.setMode('zero_shot')")
        health.tell({**THIRD, "modes": ["preset"]}, "CosyVoice3")
        p.page.wait_for_function("KK.mode() === 'preset'")
        assert (
            p.js("KK.offered().filter(v => v.sample)") == []
            and not shown(p, "[role=tab][aria-controls=kk-tab-convert]")
            and not p.errors
        )


def test_an_instruction_beside_a_clone_is_told_where_it_counts(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, BIG)
        p.page.wait_for_selector("[data-do=token]")
        p.page.click("#kk-style [data-v=happy]")
        p.page.wait_for_function("KK.mode() === 'instruct'")
        for engine, follows in ((BIG, False), (THIRD, True)):
            health.tell(engine, "CosyVoice3" if follows else "CosyVoice2")
            p.js("KK.setMode('instruct')")
            p.page.wait_for_function("KK.mode() === 'instruct'")
            p.js("KK.setMode('zero_shot')")
            p.page.wait_for_function("KK.mode() === 'zero_shot'")
            p.page.wait_for_function(
                "f => KK.isTold() === f &&"
                " document.querySelector('#kk-textcard').innerText.includes(KK.t('mode.told'))"
                " === f",
                arg=follows,
            )
        assert p.violations() == [] and not p.errors
