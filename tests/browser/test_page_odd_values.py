"""An address and a browser's memory may hold anything: what is not known there is passed over, and
nothing says undefined or NaN.
"""

from __future__ import annotations

import json

import pytest

from .studio_page import StudioPage

pytestmark = pytest.mark.browser

SEEN = (
    "() => document.body.innerText + [...document.querySelectorAll('.kk')].map(e =>"
    " e.innerHTML).join(' ')"
)
JUNK = {
    "mode": "opera", "speed": "abc", "seed": {}, "random": "no", "language": "xx", "profile": 9,
    "instruct": [1], "text": "x", "more": 1,
}  # fmt: skip
KEYS = (
    "lang", "theme", "autoplay", "motion", "keys", "format", "label", "notice", "form", "voice",
    "starter", "target", "source", "batchvoice",
    "words.notice",
)  # fmt: skip


def remembers(**preferences: str) -> str:
    return (
        f"for (const [k, v] of Object.entries({json.dumps(preferences)}))"
        " localStorage.setItem('kk.' + k, v);"
    )


def odd(p: StudioPage) -> list[str]:
    text = p.page.evaluate(SEEN)
    return [word for word in ("undefined", "NaN", "theme.", "[object") if word in text]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_unknown_theme_and_language_of_the_address_are_passed_over(chrome, studio, scheme):
    with StudioPage(
        chrome, studio.url, "xx", "x", color_scheme=scheme, locale="zh-CN", is_first=True
    ) as p:
        assert odd(p) == []
        assert p.js("KK.themeNow()") == "system" and p.js("KK.lang") == "zh"
        assert p.js("document.body.classList.contains('dark')") == (scheme == "dark")
        assert p.page.get_attribute("[data-do=theme]", "title") == p.js("KK.t('theme.system')")
        p.page.click("[data-do=theme]")
        assert p.js("[KK.themeNow(), KK.store.get('theme')]") == ["light", "light"]
        assert odd(p) == [] and not p.errors


def test_a_language_with_its_region_is_that_language(chrome, studio):
    with StudioPage(chrome, studio.url, "zh-CN", "dark") as p:
        assert p.js("KK.lang") == "zh" and p.js("KK.themeNow()") == "dark" and not p.errors


def test_what_is_remembered_stands_in_for_what_the_address_does_not_know(chrome, studio):
    with StudioPage(
        chrome, studio.url, "xx", "x", init=remembers(lang="zh", theme="dark"), is_first=True
    ) as p:
        assert p.js("[KK.lang, KK.themeNow()]") == ["zh", "dark"] and odd(p) == []


@pytest.mark.parametrize("form", [json.dumps(JUNK), "{"])
def test_a_memory_that_holds_anything_changes_nothing(chrome, studio, form):
    junk = dict.fromkeys(KEYS, "x") | {"form": form}
    with StudioPage(chrome, studio.url, "en", "light", init=remembers(**junk), is_first=True) as p:
        wishes = p.js(
            """() => {
              const sent = {},
                form = KK.live.form,
                send = form.trigger;
              form.trigger = (name, what) => {
                sent[name] = what;
                send(name, what);
              };
              document.dispatchEvent(new CustomEvent("kk:ready"));
              form.trigger = send;
              return sent;
            }"""
        )
        assert wishes["privacy"] == {"label": True, "notice": False}
        for other in (form, '"text"', "[[1], 2]", "7", "null", ""):
            assert p.js("f => { KK.store.set('form', f); return KK.remembered(); }", other) == {}
        p.page.click(".kk-adv > button")
        p.page.wait_for_selector("#kk-speed input[type=number]")
        assert p.page.input_value("#kk-speed input[type=number]") == "1"
        assert p.js("[KK.mode(), KK.chosen('kk-hop', 'none')]") == ["zero_shot", "fast"]
        assert p.page.input_value("#kk-language input") == p.js("KK.t('adv.lang.auto')")
        p.page.fill("#kk-text textarea", "Good evening.")
        assert p.js("KK.lasting(KK.measure('Good evening.')).s") >= 1
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.wait_for_selector("#kk-set-keep input[aria-checked=true]", state="attached")
        assert p.js(
            "['kk-set-theme', 'kk-set-lang', 'kk-set-keep'].map(id => KK.chosen(id, 'none'))"
        ) == ["light", "en", "36500"]
        assert odd(p) == [] and not p.errors
        p.page.click("[role=tab][aria-controls=kk-tab-speak]")
        p.go()
        p.until("done", "failed")
        assert p.js("KK.player.state") == "done", p.status()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_link_passes_over_what_it_does_not_know(chrome, studio, scheme):
    with studio.client() as http:
        http.post("/tts/session")
        link = http.post("/v1/demos", json={"voice": "starter-en-mid", "title": "Anna"}).json()
        context = chrome.new_context(color_scheme=scheme, locale="zh-CN")
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda e: errors.append(str(e)))
        for query, is_dark in (
            ("?theme=x&lang=xx", scheme == "dark"),
            ("?theme=system", scheme == "dark"),
            ("?theme=light", False),
            ("?theme=dark&lang=zh-CN", True),
        ):
            page.goto(studio.url + link["path"] + query)
            page.locator("html[data-demo=ready]").wait_for(state="attached")
            assert (page.locator("body.dark").count() == 1) == is_dark, query
            assert page.locator("html").get_attribute("lang") == "zh-CN", query
            text = page.locator("body").inner_text()
            assert "undefined" not in text and "NaN" not in text and not errors
        context.close()
        http.delete(f"/v1/demos/{link['id']}")
