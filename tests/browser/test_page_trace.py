"""The panel behind the player's figures: where the time of a stream went, by mouse and by keyboard,
in both languages.
"""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest

from .harness import PATIENT
from .studio_page import StudioPage

pytestmark = pytest.mark.browser
ROWS = """() =>
      Object.fromEntries(
        [...document.querySelectorAll("#kk-figures tbody tr, #kk-figures tfoot tr")].map(r => [
          r.cells[0].innerText,
          [...r.cells].slice(1).map(c => c.innerText)
        ])
      )"""
OPEN = "document.querySelector('#kk-figures').matches(':popover-open')"


def speak(p: StudioPage, instruction: str = "seconds=1") -> None:
    p.instruct(instruction)
    p.go()
    p.until("done")


def wait_rows(p: StudioPage) -> dict[str, list[str]]:
    p.page.wait_for_function("document.querySelectorAll('#kk-figures tbody tr').length")
    return p.js(ROWS)


@pytest.mark.parametrize(
    ("lang", "text", "encode", "total"),
    [("zh", "文本", "编码", "首音送出"), ("en", "Text", "Encoding", "First sound sent")],
)
def test_with_a_mouse(chrome, studio, lang, text, encode, total):
    with StudioPage(chrome, studio.url, lang, init=PATIENT) as p:  # the socket is one of the stages
        assert p.page.get_attribute(".kk-meter > div", "title"), "a figure keeps its title"
        speak(p)
        requests = [r for r in p.requests if r.endswith(".json") and "/tts/result/" in r]
        assert requests == [], "on demand only"
        p.page.click(".kk-meter dd >> nth=0")
        rows = wait_rows(p)
        assert rows.keys() == {
            p.js("s => KK.t('sg.s.' + s)", s) for s in ("text", "queue", "wait", "encode", "socket")
        } | {total}
        assert all(cell.endswith("ms") for cell in rows[text] + rows[encode]) and rows[total][
            0
        ].endswith("ms")
        record = p.js(
            "job => fetch(`${KK.studioUrl()}/tts/result/${job}.json`).then(r => r.json())",
            p.js("KK.player.job"),
        )
        shown = record["trace"]["sent_ms"]
        assert rows[total][0].replace("ms", "") == (
            str(Decimal(shown).quantize(Decimal("0.1"), ROUND_HALF_UP))
            if shown < 10
            else f"{int(shown + 0.5)}"
        ), "8.25 is 8.3 in the page"
        assert p.violations() == []
        p.page.click(".kk-meter dd >> nth=0")
        assert not p.js(OPEN), "the same press closes it"
        p.page.click(".kk-meter dd >> nth=0")
        assert p.js(OPEN)
        p.page.click("h1")
        assert not p.js(OPEN)


def json_of(rows: dict) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_with_the_keyboard_and_while_it_speaks(chrome, studio, lang):
    """Escape closes the panel and not the stream; a new stream's stages take the place of the old
    ones.
    """
    with StudioPage(chrome, studio.url, lang) as p:
        p.page.focus(".kk-figs")
        p.page.keyboard.press("Tab")
        p.page.keyboard.press("Shift+Tab")
        assert p.js("getComputedStyle(document.activeElement).outlineStyle") != "none", (
            "the focus is seen"
        )
        p.page.keyboard.press("Enter")
        assert (
            p.js(OPEN)
            and p.page.inner_text("#kk-figures .kk-trace") == p.js("KK.t('sg.none')")
            and p.violations() == []
        )
        p.page.keyboard.press("Escape")
        p.instruct("rtf=0.3 seconds=120")
        p.js("KK.acts.go()")
        p.until("playing")
        p.page.focus(".kk-figs")
        p.page.keyboard.press("Enter")
        p.page.wait_for_function("document.querySelectorAll('#kk-figures tbody tr').length")
        p.page.keyboard.press("Escape")
        assert not p.js(OPEN) and p.js("KK.player.busy()"), "the stream goes on"
        assert p.js("document.activeElement.className") == "kk-figs", "the focus is where it was"
        p.page.keyboard.press("Space")
        assert p.js(OPEN)
        p.page.keyboard.press("Tab")
        assert p.js("document.activeElement.closest('#kk-figures') !== null")
        p.page.keyboard.press("Enter")
        assert not p.js(OPEN)
        p.page.keyboard.press("Escape")
        p.until("cancelled")
        p.page.keyboard.press("Enter")
        first, job = wait_rows(p), p.js("KK.player.job")
        p.js("KK.acts.go()")
        p.page.wait_for_function(
            "([before, job]) => KK.player.job && KK.player.job !== job &&"
            f" JSON.stringify(({ROWS})()) !== before",
            arg=[json_of(first), job],
        )
        p.page.keyboard.press("Escape")
        p.page.keyboard.press("Escape")


def test_the_language_changes_under_an_open_panel(chrome, studio):
    with StudioPage(chrome, studio.url, "zh", size="phone") as p:
        speak(p)
        p.page.tap(".kk-figs")
        assert "编码" in wait_rows(p)
        p.js("KK.setLang('en')")
        p.page.wait_for_function(
            "document.querySelector('#kk-figures').innerText.includes('Encoding')"
        )
        box = p.js(
            "(({top, bottom, left, right}) => [top, left, right - innerWidth, bottom -"
            " innerHeight])(document.querySelector('#kk-figures').getBoundingClientRect())"
        )
        assert box[0] >= 0 and box[1] >= 0 and box[2] <= 0 and box[3] <= 0
        assert p.violations() == []


def test_a_built_in_voice_shows_its_own_stages(chrome):
    from tests.serve import running

    with running(engine="builtin") as studio, StudioPage(chrome, studio.url, "en") as p:
        p.page.click("#kk-source label >> nth=1")
        p.page.fill("#kk-text textarea", "Good morning.")
        p.js("KK.player.start({input: 'Good morning.', voice: 'starter-en-low'})")
        p.page.wait_for_function("KK.player.whole")
        p.page.click(".kk-meter")
        rows = wait_rows(p)
        assert {
            "Base speech",
            "Analysis",
            "Conversion",
            "Synthesis",
        } <= rows.keys() and "Flow" not in rows
