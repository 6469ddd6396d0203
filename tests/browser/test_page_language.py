"""Switching the page's language changes words only: every control, what would be spoken, and the
sound that plays stay as they are.
"""

from __future__ import annotations

import pytest

from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser

# What every control of the page holds. A list's own field shows its choice in the page's language:
# the request says what is chosen.
CONTROLS = """() => {
      const all = {},
        put = (e, value) => {
          const box = e.closest("[id]"),
            key = [
              box?.id,
              e.type === "radio" ? "" : e.name || "",
              e.type || "",
              e.dataset.do || "",
              e.dataset.v || e.dataset.id || e.dataset.g || e.dataset.edge || "",
              e.type === "radio" ? e.value : ""
            ].join("|");
          (all[key] ??= []).push(value);
        };
      for (const e of document.querySelectorAll(
        "#kk-app :is(input, textarea, select):not([type=file])" +
          ":not(:is(#kk-language, #kk-set-lang) *)"
      ))
        put(e, ["radio", "checkbox"].includes(e.type) ? e.checked : e.value);
      for (const e of document.querySelectorAll(
        "#kk-app [aria-pressed]:not([data-do=lang]), #kk-app [role=radio], #kk-app [role=tab]"
      ))
        put(e, e.ariaPressed ?? e.ariaChecked ?? e.ariaSelected);
      for (const e of document.querySelectorAll("#kk-app details")) put(e, e.open);
      return all;
    }"""
# What Generate would ask for; nothing is begun.
REQUEST = """async () => {
      let asked = null;
      const begin = KK.player.start;
      KK.player.start = params => {
        asked = params;
      };
      KK.live.player.trigger("generate");
      for (let n = 0; n < 200 && !asked; n++) await new Promise(requestAnimationFrame);
      KK.player.start = begin;
      return asked;
    }"""
FILL = """() => {
      for (const e of document.querySelectorAll(
        "#kk-app .kk :is(input[type=text], input[type=search], textarea)"
      )) {
        if (!e.checkVisibility()) continue;
        e.value = "a1";
        e.dispatchEvent(new Event("input", { bubbles: true }));
      }
    }"""


def switch(p: StudioPage, lang: str) -> None:
    p.page.click(f"[data-do=lang][data-v={lang}]")
    p.page.wait_for_function("l => document.documentElement.lang.startsWith(l)", arg=lang)
    p.page.wait_for_timeout(300)  # Gradio draws its widgets' words in its own time


def tab(p: StudioPage, name: str) -> None:
    p.page.click(f"[role=tab][aria-controls=kk-tab-{name}]")
    p.page.wait_for_function("n => KK.tabNow() === n", arg=name)


def test_the_language_that_was_chosen_is_that_of_the_next_visit(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        for lang in ("en", "zh"):
            switch(p, lang)
            p.page.goto(studio.url)  # no language in the address
            p.page.wait_for_function("l => window.KK?.lang === l", arg=lang)


def test_the_voice_that_stands_in_stays_when_the_language_is_switched(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        first = [p.js("KK.voiceId()"), p.js("KK.field('kk-text').value")]
        for lang in ("en", "zh"):
            switch(p, lang)
            assert [p.js("KK.voiceId()"), p.js("KK.field('kk-text').value")] == first


def test_every_control_stays_while_a_sound_streams(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in(clip(9, noise=0.02))
        p.js("document.querySelector('.kk-details').open = true")
        p.page.fill("#kk-transcript textarea", "这是参考文本。")
        p.consent()
        p.page.fill("#kk-savename :is(input, textarea)", "小林")
        p.page.fill("#kk-text textarea", "换语言，不换声音。Nothing else.")
        p.page.click(".kk-adv > button")
        p.page.wait_for_selector("#kk-language input")
        settings = {"speed": 1.25, "seed": "42", "random": False, "profile": "smooth"}
        p.js("v => KK.put(v)", settings | {"language": "zh"})
        p.page.wait_for_function(
            "KK.remembered().language === 'zh' && KK.remembered().seed === '42'"
        )
        for chip in ("sichuan", "happy"):
            p.page.click(f"#kk-style [data-v={chip}]")
        p.page.wait_for_function("KK.mode() === 'instruct'")
        tab(p, "voices")
        p.page.fill("#kk-search-voices", "e")
        p.js(
            "() => document.querySelector('#kk-library [data-do=sharevoice]')?.click()"
        )  # its form opens
        tab(p, "batch")
        p.page.fill("#kk-batchtext", "第一行\n第二行")
        p.page.select_option("#kk-batchvoice", index=3)
        tab(p, "settings")
        p.page.wait_for_selector(".kk-wordfoot")
        p.page.select_option("#kk-word-language", "ja")
        for name in ("voices", "batch", "settings"):
            tab(p, name)
            p.js(FILL) if name != "batch" else p.page.fill("#kk-batchseed", "7")
        p.page.fill("#kk-search-voices", "e") if p.page.is_visible("#kk-search-voices") else None
        tab(p, "speak")
        p.page.wait_for_timeout(500)
        before, request = p.js(CONTROLS), p.js(REQUEST)
        assert request["instructions"] and request["language"] == "zh" and request["seed"] == 42
        # a long sound of the tone engine, begun as a take is made again: the form is not in it
        p.js(
            "params => KK.regenerate({...params, instructions: 'rtf=0.4 first=1 seconds=120'})",
            request,
        )
        p.until("playing")
        job = p.js("KK.player.job")
        for lang in ("en", "zh"):
            switch(p, lang)
            now = p.js(CONTROLS)
            changed = {
                k: (before.get(k), now.get(k)) for k in before | now if before.get(k) != now.get(k)
            }
            assert changed == {}, f"in {lang}"
            assert p.js("[KK.player.job, KK.player.state, KK.player.counters.underruns]") == [
                job,
                "playing",
                0,
            ]
        p.js("KK.player.stop()")
        p.until("cancelled")
        for lang in ("en", "zh"):
            switch(p, lang)
            assert p.js(REQUEST) == request, f"in {lang}"
        assert not p.errors
