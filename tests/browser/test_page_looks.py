"""The page's checks P1-P3, P6, P7, P9, P10 and P13 of its design: accessibility in every state,
nothing moves, languages do not mix, nothing leaves the host.
"""

from __future__ import annotations

import re

import pytest

from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser


SHOWN = {
    "voices": "#kk-library .kk-voice",
    "settings": "#kk-app:has(#kk-set-keep input) .kk-wordfoot",
}


def named(p: StudioPage) -> None:
    """Gradio mounts widgets late; the page gives them their names in the frame after."""
    p.page.wait_for_function(
        """() =>
          [...document.querySelectorAll("#kk-app fieldset.kk-seg")].every(
            f => f.ariaLabel || !f.querySelector(":scope > span")
          ) &&
          [...document.querySelectorAll("#kk-speed input")].every(e => e.ariaLabel) &&
          [...document.querySelectorAll(".kk-adv > button")].every(
            b => b.ariaExpanded === String(b.classList.contains("open"))
          )"""
    )


@pytest.mark.parametrize(
    ("lang", "theme", "size"),
    [
        ("zh", "light", "wide"),
        ("en", "dark", "wide"),
        ("zh", "dark", "phone"),
        ("en", "light", "tablet"),
    ],
)
def test_axe_finds_nothing_in_any_state(chrome, studio, lang, theme, size):
    """P1, and P3 and P9 on the way: what shifted while the page came up, and which hosts were
    asked.
    """
    violations = {}
    with StudioPage(chrome, studio.url, lang, theme, size, is_first=True) as p:
        assert sum(s["v"] for s in p.js("shifts")) <= 0.1, p.js("shifts")
        violations["start"] = p.violations()
        p.upload(b"not audio")
        p.page.wait_for_selector("#kk-health .kk-warn[data-tone=bad]")
        violations["bad clip"] = p.violations()
        p.clip_in(clip(5, noise=0.03, cut=True))
        p.js(
            "() => { document.documentElement.dataset.voice = 'open';"
            " document.querySelector('.kk-details').open = true; }"
        )
        violations["warnings"] = p.violations()
        p.page.click(".kk-adv > button")
        p.page.wait_for_selector("#kk-hop input", state="attached")
        named(p)
        violations["advanced"] = p.violations()
        p.consent()
        p.instruct("rtf=0.6 seconds=120")
        p.go()
        p.until("playing")
        violations["streaming"] = p.violations()
        p.go()
        p.until("cancelled")
        p.js("KK.player.show('queued', {n: 3, s: 12})")
        violations["queue"] = p.violations()
        p.js("KK.player.show('cancelled', {s: 1})")
        p.instruct("fail=1")
        p.go()
        p.until("failed")
        p.page.wait_for_selector(".kk-take[data-tone=bad]")
        violations["failed"] = p.violations()
        p.page.click(".kk-eng")
        violations["engine"] = p.violations()
        p.page.keyboard.press("Escape")
        for tab in ("voices", "settings"):
            p.page.click(f"[role=tab][aria-controls=kk-tab-{tab}]")
            p.page.wait_for_selector(SHOWN[tab])
            named(p)
            violations[tab] = p.violations()
        assert {k: v for k, v in violations.items() if v} == {}
        assert [
            r for r in p.requests if not r.startswith((studio.url, "blob:" + studio.url, "data:"))
        ] == []
        assert not p.errors


@pytest.mark.parametrize("size", ["wide", "phone"])
def test_nothing_moves_from_generate_to_the_end(chrome, studio, size):
    """P2: shifts right after a press are counted too."""
    with StudioPage(chrome, studio.url, "zh", size=size) as p:
        p.instruct("rtf=0.5 first=1 seconds=2")
        p.page.wait_for_load_state("networkidle")
        p.page.wait_for_timeout(700)
        p.js("shifts.length = 0")
        p.go()
        p.until("done")
        p.wait_takes(1)
        p.page.wait_for_timeout(300)
        moved = p.js("shifts")
        assert sum(s["v"] for s in moved) <= 0.005, moved
        assert [s["who"] for s in moved if set(s["who"].split(" | ")) - {"bar"}] == []


def test_python_updates_leave_canvas_focus_and_sound_alone(chrome, studio):
    """P6: takes, health and header change in mid-stream."""
    with StudioPage(chrome, studio.url, "zh") as p:
        p.js("window.canvas = document.querySelector('#kk-player canvas')")
        p.instruct("rtf=0.3 first=1 seconds=6")
        p.go()
        p.until("playing", "draining")
        p.page.focus("#kk-text textarea")
        p.js("KK.send('takes', {op: 'list'}); KK.send('picker', {op: 'list'}); KK.askEngine(1000)")
        p.clip_in()
        p.js("KK.live.header.data = {...KK.engine(), streams: 3}; KK.draw('header')")
        p.page.wait_for_timeout(600)
        assert p.js("document.querySelector('#kk-player canvas') === canvas && canvas.isConnected")
        assert p.js("document.activeElement === KK.field('kk-text')")
        p.until("done")
        assert p.js("KK.player.counters.underruns") == 0 and p.js("KK.player.counters.missing") == 0


# names that are the same in both languages
SAME = re.compile(
    r"开口|中文|^中$|中，中文|Kaikou|EN,"
    r" English|English|RTF|LUFS|fake|WAV|Ctrl|Esc|Space|^[RD/?]$|SNR|(?:Fun-)?CosyVoice[\w.-]*|MB|"
    r"kHz|dB|rtf=|seconds=|zip|AI"
)
SEEN = """() => {
      const out = new Set(),
        seen = e => e.checkVisibility?.({ visibilityProperty: true }) ?? true;
      const walk = document.createTreeWalker(
        document.querySelector("#kk-app"),
        NodeFilter.SHOW_TEXT
      );
      for (let n; (n = walk.nextNode());) {
        const e = n.parentElement;
        if (
          n.data.trim() &&
          !e.closest("textarea, script, style, .kk-take p, .kk-take .kk-meta, [data-mic]") &&
          seen(e)
        )
          out.add(n.data.trim());
      }
      for (const e of document.querySelectorAll(
        "#kk-app [aria-label], #kk-app [placeholder], #kk-app [title]"
      ))
        if (seen(e) && !e.closest(".kk-take p"))
          for (const a of ["aria-label", "placeholder", "title"]) {
            const s = e.getAttribute(a);
            if (
              s?.trim() &&
              !(a === "title" && e.matches("[data-do=example]")) &&
              !e.closest(".kk-take [data-do=playtake]")
            )
              out.add(s.trim());
          }
      return [...out];
    }"""


def strangers(page: StudioPage, lang: str) -> list[str]:
    """Words on the screen, seen or spoken, that belong to the other language."""

    def is_strange(s: str) -> bool:
        rest = SAME.sub("", s)
        return (
            bool(re.search(r"[\u4e00-\u9fff]", rest))
            if lang == "en"
            else bool(re.search(r"[A-Za-z]{3,}", rest))
        )

    return [s for s in page.js(SEEN) if is_strange(s)]


def remaining(page: StudioPage, lang: str) -> list[str]:
    """The strangers that stay: Gradio says its own words again a little later."""
    for _ in range(100):
        if not (foreign_texts := strangers(page, lang)):
            break
        page.page.wait_for_timeout(100)
    return foreign_texts


@pytest.mark.parametrize(("first", "then"), [("zh", "en"), ("en", "zh")])
def test_language_and_theme_switch_in_mid_stream(chrome, studio, first, then):
    """P7: the sound goes on, the text stays, nothing of the other language is left on any tab."""
    text = "一二三四五。" if first == "zh" else "One two three four five."
    with StudioPage(chrome, studio.url, first) as p:
        p.page.fill("#kk-text textarea", text)
        p.clip_in(clip(5, noise=0.03, cut=True))
        p.consent()
        p.page.click(".kk-adv > button")
        p.instruct("rtf=0.4 first=1 seconds=120")
        p.go()
        p.until("playing")
        job = p.js("KK.player.job")
        p.page.click(f"[data-do=lang][data-v={then}]")
        p.page.click("[data-do=theme]")
        p.page.wait_for_function("l => document.documentElement.lang.startsWith(l)", arg=then)
        p.page.wait_for_timeout(600)
        assert p.js(
            "[KK.player.state, KK.player.job, KK.field('kk-text').value,"
            " KK.player.counters.underruns]"
        ) == [
            "playing",
            job,
            text,
            0,
        ]
        p.page.fill("#kk-text textarea", "1. 2. 3.")
        p.page.fill("#kk-instruct textarea, #kk-instruct input", "")
        p.js("KK.player.stop()")
        p.until("cancelled")
        p.page.wait_for_timeout(300)
        foreign_texts = {"speak": remaining(p, then)}
        for tab in ("voices", "settings"):
            p.page.click(f"[role=tab][aria-controls=kk-tab-{tab}]")
            p.page.wait_for_selector(SHOWN[tab])
            p.page.wait_for_timeout(500)
            foreign_texts[tab] = remaining(p, then)
        assert {k: v for k, v in foreign_texts.items() if v} == {}
        assert not p.errors


def test_small_large_still_and_forced(chrome, studio):
    """P10: 320 px, text at 200 %, reduced motion, forced colours: no sideways scroll, states
    visible.
    """
    with StudioPage(chrome, studio.url, "en", reduced_motion="reduce", forced_colors="active") as p:
        p.page.set_viewport_size({"width": 320, "height": 720})
        p.page.wait_for_timeout(200)
        p.page.wait_for_function("document.documentElement.scrollWidth <= 320")
        p.js("document.documentElement.style.fontSize = '200%'")
        p.page.wait_for_function("document.documentElement.scrollWidth <= 320")
        cut = p.js(
            """() =>
              [...document.querySelectorAll("#kk-app button, #kk-app h2, #kk-app label")]
                .filter(
                  e =>
                    e.checkVisibility() &&
                    !e.closest(".kk-scroll") &&
                    e.getBoundingClientRect().right > 322
                )
                .map(e => e.className + e.innerText)"""
        )
        assert cut == []
        p.page.click("#kk-style [data-v=happy]")
        assert (
            p.js(
                "getComputedStyle(document.querySelector('#kk-style [data-v=happy]')).outlineStyle"
            )
            == "solid"
        )
        assert (
            p.js(
                "getComputedStyle(document.querySelector('#kk-style"
                " [data-v=happy]')).transitionDuration"
            )
            == "0s"
        )


def test_gradio_still_has_what_the_page_leans_on(chrome, studio):
    """P13: else this release of Gradio is not taken."""
    with StudioPage(chrome, studio.url, "en") as p:
        assert (
            p.js(
                """(async () =>
                  typeof (
                    await import(
                      performance
                        .getEntriesByType("resource")
                        .map(e => e.name)
                        .find(n => /\\/core-[\\w-]+\\.js$/.test(n))
                    )
                  ).changeLocale)()"""
            )
            == "function"
        )
        p.clip_in()
        for hook in (
            "div > [role=tablist] [role=tab][aria-controls=kk-tab-speak][aria-selected=true]",
            "#kk-tab-speak[role=tabpanel]",
            "fieldset.kk-seg > span",
            "fieldset.kk-seg > div > label",
            "#kk-mode input[aria-checked=true]",
            ".kk-entry label > span",
            "div:has(> .kk-entry)",
            ".kk-adv > button > span + span",
            ".kk-adv > button + div",
        ):
            p.page.wait_for_selector(hook, state="attached")
