"""The two voices of the built-in engine on the page: the switch, what is remembered of it, what
takes say, and what the engine's panel says of them.
"""

from __future__ import annotations

import json

import pytest

from tests.engine.natural_setup import needs_weights
from tests.serve import running

from .studio_page import StudioPage
from .test_page_engine import BASIC, Health, shown

pytestmark = pytest.mark.browser
SWITCH = "#kk-voiceengine"
HERE = {"natural": 0.41, "instant": 0.01}
ABSENT = ["The natural voice is not installed.", "自然音色还没有装好。"]
STATES = {
    "starting": {
        "voice_engines": {"instant": 0.01},
        "voice_note": ["Still loading.", "还在载入。"],
    },
    "ready": {"voice_engines": HERE, "voice_note": []},
    "slow": {
        "voice_engines": {"instant": 0.01, "natural": 1.3},
        "voice_note": ["It takes 1.3 s.", "要 1.3 秒。"],
    },
    "broken": {"voice_engines": {"instant": 0.01}, "voice_note": ABSENT},
    "": {"voice_engines": {"instant": 0.01}, "voice_note": []},
}
PANEL = {  # state -> what the panel says of it, in either language, and what it does not
    "starting": {"zh": (["自然音色载入中", "还在载入。"], ["Kokoro"]),
        "en": (["natural voice loading", "Still loading."], ["Kokoro"])},
    "ready": {"zh": (["自然音色就绪", "Kokoro-82M", "0.41"], ["基础音质"]),
        "en": (["Natural voice ready", "Kokoro-82M", "0.41"], ["Basic quality", "basic quality"])},
    "slow": {"zh": (["基础音质", "要 1.3 秒。", "0.01"], []),
        "en": (["Basic quality", "It takes 1.3 s.", "0.01"], [])},
    "broken": {"zh": (["基础音质", ABSENT[1]], []), "en": (["Basic quality", ABSENT[0]], [])},
    "": {"zh": (["基础音质"], ["自然"]), "en": (["Basic quality"], ["atural"])},
}  # fmt: skip


@pytest.fixture(scope="module")
def natural_studio():
    with running(engine="builtin", natural="fast") as studio:
        yield studio


@pytest.fixture(scope="module")
def loading():
    with running(engine="builtin", natural="loading") as studio:
        yield studio


def choose(p: StudioPage, kind: str) -> None:
    p.page.check(f"{SWITCH} input[value={kind}]")
    p.page.wait_for_function(
        "k => JSON.parse(KK.store.get('form') || '{}').voice_engine === k", arg=kind
    )


def chosen(p: StudioPage) -> str:
    return p.page.eval_on_selector(f"{SWITCH} input:checked", "e => e.value")


def write(p: StudioPage, text: str) -> None:
    p.js("t => KK.setField('kk-text', t)", text)


# ---- what the page says, in each state of the natural voice --------------------------------------
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_switch_and_panel_follow_the_natural_voice(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang) as p:
        health = Health(p, {**BASIC, "natural": "", **STATES[""]})
        p.page.click(".kk-eng")
        for state, words in PANEL.items():
            health.health = {**BASIC, "natural": state, **STATES[state]}
            p.js("KK.askEngine()")
            p.page.wait_for_function(
                "s => KK.engine().natural === s && KK.engine().engine === 'builtin'", arg=state
            )
            text = p.page.inner_text("#kk-engpop") + p.page.inner_text(".kk-eng")
            expected_phrases, not_here = words[lang]
            assert (
                [w for w in expected_phrases if w not in text]
                == []
                == [w for w in not_here if w in text]
            ), (
                state,
                text,
            )
            assert shown(p, SWITCH) == (state in ("starting", "ready", "slow")), state
            assert p.violations() == [], state
        assert not p.errors


def test_the_page_looks_again_until_the_natural_voice_is_decided_and_says_so_once(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, {**BASIC, "natural": "starting", **STATES["starting"]})
        p.page.wait_for_function("KK.engine().natural === 'starting'", timeout=8000)
        health.health = {**BASIC, "natural": "ready", **STATES["ready"]}
        p.page.wait_for_function("KK.engine().natural === 'ready'", timeout=8000)
        assert p.js("said") == [p.js("KK.t('eng.now.natural')")]
        n = health.n_requests
        p.page.wait_for_timeout(2500)
        assert health.n_requests == n, "then it asks rarely again"


def test_no_voice_is_asked_for_where_there_is_no_switch(chrome, studio):
    """What was chosen with the natural voice there is no part of a request to an engine without
    it.
    """
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, {**BASIC, "natural": "ready", **STATES["ready"]})
        p.page.wait_for_selector(SWITCH)
        choose(p, "natural")
        p.js("() => { window.sent = []; KK.player.start = params => sent.push(params.model); }")
        p.go()
        health.tell({**BASIC, "natural": "broken", **STATES["broken"]}, "basic quality")
        p.go()
        health.tell({**BASIC, "engine": "cosyvoice2", "basic": False}, "CosyVoice2")
        p.go()
        assert p.js("sent") == ["builtin-natural", None, None]


def test_batches_follow_a_switch_of_their_own_and_lines_may_differ(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, {**BASIC, "natural": "ready", **STATES["ready"]})
        posted = []
        p.page.route(
            "**/v2/synthesize/batch",
            lambda r: (
                posted.append(json.loads(r.request.post_data)),
                r.fulfill(status=422, body='{"error": {"message": "no"}}'),
            ),
        )
        p.page.click("[role=tab][aria-controls=kk-tab-batch]")
        p.page.fill("#kk-batchtext", "text,model\nOne.,\nTwo.,builtin-instant\n")
        p.page.select_option("#kk-batchspeaks", "natural")
        p.page.click("#kk-batchgo")
        p.page.wait_for_function("document.querySelector('#kk-batchsay').textContent === 'no'")
        health.health = {**BASIC, "natural": "", **STATES[""]}
        p.js("KK.askEngine()")
        p.page.wait_for_function("!document.documentElement.hasAttribute('data-natural')")
        assert not shown(p, "#kk-batchspeaks")
        p.page.click("#kk-batchgo")
        for _ in range(100):
            if len(posted) < 2:
                p.page.wait_for_timeout(50)
        assert [b.get("model") for b in posted] == ["builtin-natural", None]
        assert [r.get("model") for r in posted[0]["requests"]] == [None, "builtin-instant"]
        p.page.reload()
        p.ready()
        p.page.click("[role=tab][aria-controls=kk-tab-batch]")
        assert p.page.input_value("#kk-batchspeaks") == "natural", "remembered"


def test_starters_are_heard_as_the_usual_voice_speaks_with_them(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, {**BASIC, "natural": "slow", **STATES["slow"]})
        p.page.wait_for_function("KK.engine().natural === 'slow'")

        def played() -> str:
            with p.page.expect_request("**/sample*") as request:
                p.page.locator("#kk-health [data-do=demo]").first.click()
            p.js("KK.stopPreview()")
            return request.value.url

        assert played().endswith("/sample"), "the recording"
        health.tell({**BASIC, "natural": "ready", **STATES["ready"]}, "Natural voice ready")
        p.page.locator("#kk-health [data-do=demo]").last.click()  # another one between
        assert played().endswith("/sample?natural=true")
        assert not p.errors


# ---- with the natural voice itself ---------------------------------------------------------------
@needs_weights
def test_natural_is_the_default_a_choice_is_kept_and_takes_say_which_spoke(chrome, natural_studio):
    with StudioPage(chrome, natural_studio.url, "zh") as p:
        p.page.wait_for_selector(SWITCH)
        assert chosen(p) == "auto"
        write(p, "你好。")
        take = p.speak(1, "builtin")
        assert (take["voice_engine"], take["voice_notes"]) == ("natural", [])
        assert "内置 · 自然" in p.page.inner_text(".kk-take .kk-tag")
        choose(p, "instant")
        p.page.reload()
        p.ready()
        p.page.wait_for_selector(SWITCH)
        p.page.wait_for_function(
            f"document.querySelector('{SWITCH} input:checked').value !== 'auto'"
        )
        assert chosen(p) == "instant", "remembered"
        assert p.speak(2, "builtin")["voice_engine"] == "instant"
        assert "内置 · 即时" in p.page.inner_text(".kk-take .kk-tag")
        p.page.click(".kk-take [data-do=code]")
        p.page.wait_for_selector("#kk-code[open]")
        assert '"model": "builtin-instant"' in p.page.inner_text("#kk-code")
        p.page.keyboard.press("Escape")
        p.page.locator(".kk-take").nth(1).locator("[data-do=restore]").click()
        p.page.wait_for_function(
            f"document.querySelector('{SWITCH} input:checked').value === 'natural'"
        )
        first = p.takes()[1]
        second = p.speak(3, "builtin")  # the same settings, so the same sound
        assert (second["voice_engine"], second["seed"]) == ("natural", first["seed"])
        assert second["n_samples"] == first["n_samples"] and second["peaks"] == first["peaks"]
        assert not p.errors


@needs_weights
@pytest.mark.parametrize(("lang", "dialect"), [("zh", "方言"), ("en", "dialects")])
def test_a_dialect_and_another_language_are_spoken_by_instant_and_the_take_says_why(
    chrome, natural_studio, lang, dialect
):
    with StudioPage(chrome, natural_studio.url, lang) as p:
        p.page.wait_for_selector(SWITCH)
        choose(p, "natural")
        write(p, "你好。")
        p.page.click("[data-do=style][data-v=sichuan]")
        n = len(p.takes())
        assert p.speak(n + 1, "builtin")["voice_engine"] == "instant"
        note = p.page.inner_text(".kk-take .kk-voicenote")
        assert dialect in note, note
        p.page.click("[data-do=style][data-v=sichuan]")
        write(p, "こんにちは。")
        assert p.speak(n + 2, "builtin")["voice_engine"] == "instant"
        other = p.page.inner_text(".kk-take .kk-voicenote")
        assert other != note
        assert p.violations() == []
        p.page.reload()
        p.ready()
        p.wait_takes(n + 2)
        assert p.page.inner_text(".kk-take .kk-voicenote") == other, "kept with the take"


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_while_it_loads_the_first_click_speaks_at_once_and_the_take_says_why(chrome, loading, lang):
    with StudioPage(chrome, loading.url, lang, size="phone") as p:
        p.page.wait_for_selector(SWITCH)
        write(p, "你好。")
        assert p.speak(len(p.takes()) + 1, "builtin")["voice_engine"] == "instant"
        note = p.page.inner_text(".kk-take .kk-voicenote")
        assert {"zh": "还在载入", "en": "still loading"}[lang] in note
        assert p.js("document.documentElement.scrollWidth <= innerWidth"), "nothing sideways"
        box = p.page.locator(SWITCH).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, box
        labels = p.page.locator(f"{SWITCH} label").all()
        assert min(b.bounding_box()["height"] for b in labels) >= 24, "large enough for a finger"


@needs_weights
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_nothing_moves_much_when_the_page_opens_with_the_switch(chrome, natural_studio, size):
    with StudioPage(chrome, natural_studio.url, "zh", size=size, is_first=True) as p:
        p.page.wait_for_selector(SWITCH)
        assert sum(s["v"] for s in p.js("shifts")) <= 0.1, p.js("shifts")
        assert p.violations() == []
