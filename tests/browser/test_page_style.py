"""Where a style does not apply its chips and the instruction are off, the reason stands there in
words, and nothing of it is sent.
"""

from __future__ import annotations

import pytest

from .studio_page import StudioPage
from .test_page_engine import BIG, Health
from .test_page_language import REQUEST

pytestmark = pytest.mark.browser
WHY = "document.querySelector('#kk-style-why').textContent"


def says(p: StudioPage, key: str) -> None:
    p.page.wait_for_function(f"k => {WHY} === KK.t(k)", arg=key)


def off(p: StudioPage) -> list[str]:
    """Chips that cannot be pressed; each must be described by words that are seen."""
    return p.js(
        """() =>
          [...document.querySelectorAll("#kk-style [data-do=style][aria-disabled=true]")].map(b => {
            const why = document.getElementById(b.getAttribute("aria-describedby"));
            return why?.checkVisibility() && why.textContent
              ? b.dataset.v
              : b.dataset.v + " without a reason";
          })"""
    )


def into(p: StudioPage, mode: str) -> None:
    p.js("m => KK.setMode(m)", mode)
    p.page.wait_for_function("m => KK.mode() === m", arg=mode)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_what_does_not_apply_is_off_with_its_reason_and_not_sent(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang) as p:
        health = Health(p, {**BIG, "styles": ["sichuan", "yue", "happy", "calm"]})
        p.page.wait_for_selector("#kk-style-grey")
        assert "angry" in off(p) and "happy" not in off(p), "beyond this engine"
        p.page.fill("#kk-text textarea", "你好。")
        p.page.click("#kk-style [data-v=sichuan]")
        p.page.click("#kk-style [data-v=happy]")
        says(p, "style.opt")
        instructions = p.js(REQUEST)["instructions"]
        # the text: a dialect changes nothing of an English one; the emotion still counts
        p.page.fill("#kk-text textarea", "Hello there.")
        says(p, "style.no.dialect")
        assert {"sichuan", "yue"} <= set(off(p)) and "happy" not in off(p)
        sent = p.js(REQUEST)["instructions"]
        assert sent and sent != instructions and sent == p.js("KK.field('kk-instruct').value")
        assert p.violations() == []
        p.page.fill("#kk-text textarea", "你好。")
        says(p, "style.opt")
        assert p.js(REQUEST)["instructions"] == instructions, "it is chosen still"
        # a mode that follows none
        into(p, "cross_lingual")
        says(p, "style.rests")
        assert p.js(REQUEST)["instructions"] == ""
        into(p, "preset")
        says(p, "style.no.preset")
        n_chips = p.page.locator("#kk-style [data-do=style]").count()
        assert len(off(p)) == n_chips and p.js(REQUEST)["instructions"] == ""
        field = "document.querySelector('#kk-instruct :is(input, textarea)')"
        assert p.js(f"[{field}.readOnly, {field}.ariaDisabled, {field}.value]") == [
            True,
            "true",
            instructions,
        ]
        p.js("document.querySelector('#kk-style [data-v=calm]').click()")
        assert p.js(
            "[...document.querySelectorAll('#kk-style [aria-pressed=true]')].map(b => b.dataset.v)"
        ) == [
            "sichuan",
            "happy",
        ]
        assert p.violations() == []
        p.page.click("[data-do=usestyle]")
        says(p, "style.opt")
        assert p.js(REQUEST)["instructions"] == instructions and not p.js(f"{field}.readOnly")
        # an engine that follows none
        health.tell({**BIG, "modes": ["zero_shot", "cross_lingual"]}, "CosyVoice2")
        says(p, "style.no.engine")
        assert p.page.locator("#kk-instruct").is_visible()
        assert len(off(p)) == p.page.locator("#kk-style [data-do=style]").count()
        assert p.js(REQUEST)["instructions"] == "" and p.violations() == [] and not p.errors
