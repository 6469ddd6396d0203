"""Who speaks, as the page tells it: the big engine on its way, taking over, failing, its download;
what it cannot do of a request.
"""

from __future__ import annotations

import json

import pytest

from .studio_page import StudioPage

pytestmark = pytest.mark.browser
BASIC = {
    "state": "ready",
    "engine": "builtin",
    "basic": True,
    "rtf": 0.01,
    "modes": ["zero_shot", "cross_lingual", "instruct", "preset"],
    "tags": [],
    "styles": [],
}
COMING = {
    "state": "starting",
    "reason": "Loading the acoustic model",
    "reason_zh": "正在载入声学模型",
    "progress": 0.43,
}
BIG = {
    **BASIC,
    "engine": "cosyvoice2",
    "basic": False,
    "rtf": 0.42,
    "modes": [*BASIC["modes"], "convert"],
    "tags": ["[laughter]", "[breath]", "<strong>", "</strong>"],
}
LOADING = {"zh": "CosyVoice2 载入中 43%", "en": "Loading CosyVoice2 43%"}


class Health:
    """Stands in for GET /tts/health, so that each state comes when the test wants it."""

    def __init__(self, page: StudioPage, health: dict):
        self.page, self.health, self.n_requests = page, health, 0
        page.page.route("**/tts/health", self._answer)
        page.js("KK.askEngine()")
        page.record_toasts()

    def _answer(self, route) -> None:
        self.n_requests += 1
        route.fulfill(body=json.dumps(self.health), content_type="application/json")

    def tell(self, health: dict, until: str) -> None:
        self.health = health
        self.page.js("KK.askEngine()")
        self.page.page.wait_for_function(
            "s => document.querySelector('.kk-eng').innerText.includes(s)", arg=until
        )


def shown(p: StudioPage, query: str) -> bool:
    return p.js("q => !!document.querySelector(q)?.checkVisibility()", query)


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_takeover_is_seen_said_once_and_followed_without_a_reload(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang) as p:
        health = Health(p, {**BASIC, "coming": COMING})
        p.page.wait_for_function(
            "s => document.querySelector('.kk-eng .kk-second')?.innerText === s", arg=LOADING[lang]
        )
        assert (
            not shown(p, "[role=tab][aria-controls=kk-tab-convert]")
            and not p.page.locator("[data-do=token]").count()
        )
        p.page.click(".kk-eng")
        assert COMING["reason_zh" if lang == "zh" else "reason"] in p.page.inner_text("#kk-engpop")
        assert p.violations() == []
        p.page.keyboard.press("Escape")
        text, voices = p.page.input_value("#kk-text textarea"), p.js("KK.voices().length")
        # nobody asks for it: while something is coming the page looks again by itself, soon
        health.health = BIG
        p.page.wait_for_function(
            "document.querySelector('.kk-eng').innerText.includes('CosyVoice2 ' +"
            " KK.t('eng.ready.s').toLowerCase())",
            timeout=6000,
        )
        p.page.wait_for_selector("[data-do=token][data-v='[laughter]']")
        assert (
            shown(p, "[role=tab][aria-controls=kk-tab-convert]")
            and p.page.input_value("#kk-text textarea") == text
        )
        p.js("KK.askEngine()")
        p.page.wait_for_timeout(300)
        assert p.js("said") == [p.js("KK.t('eng.now.full', {e: 'CosyVoice2'})")]
        assert p.js("KK.voices().length") == voices
        health.tell({**BIG, "rtf": 1.6}, {"zh": "本机较慢", "en": "slow on this machine"}[lang])
        assert p.page.get_attribute(".kk-eng", "data-tone") == "warn"
        assert "1.6" in p.js("document.querySelector('#kk-engpop').textContent")
        assert p.violations() == [] and not p.errors


def test_an_answer_that_was_overtaken_changes_nothing(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        health = Health(p, BIG)
        pending = []
        p.page.unroute("**/tts/health")
        p.page.route(
            "**/tts/health",
            lambda route: pending.append(route) if not pending else health._answer(route),
        )
        p.js("() => { window.first = KK.askEngine(); }")
        for _ in range(400):
            if not pending:
                p.page.wait_for_timeout(50)
        health.tell({**BASIC, "coming": COMING}, LOADING["en"])
        pending[0].fulfill(body=json.dumps(BIG), content_type="application/json")
        p.js("window.first")
        p.page.wait_for_timeout(100)  # a draw would have come
        assert (
            LOADING["en"] in p.page.inner_text(".kk-eng")
            and not shown(p, "[role=tab][aria-controls=kk-tab-convert]")
            and not p.errors
        )


def test_what_the_page_was_opened_with_changes_nothing_once_it_has_asked(chrome, studio):
    """The page's first load goes through a queue, the question does not: on a busy machine its
    answer is the older one and comes later.
    """
    with StudioPage(chrome, studio.url, "en") as p:
        p.js(
            """() =>
              fetch(KK.studioUrl() + "/v1/audio/speech", {
                method: "POST",
                headers: { "Content-Type": "application/json" },
                body: JSON.stringify({ input: "One.", voice: KK.voices()[0].id, stream: false })
              })
                .then(r => r.arrayBuffer())
                .then(() => 0)"""
        )
        pending = []
        p.page.route("**/queue/join*", lambda r: pending.append(r))
        p.page.reload()
        p.ready()
        Health(p, {**BASIC, "coming": COMING})
        assert LOADING["en"] in p.page.inner_text(".kk-eng") and p.takes() == [] and pending
        p.instruct("seconds=30 rtf=1")  # so that it says something else than the page itself did
        p.go()
        p.until("playing")
        p.page.unroute("**/queue/join*")
        for route in pending:
            route.continue_()
        p.wait_takes(1)  # what the page was opened with is there
        assert (
            LOADING["en"] in p.page.inner_text(".kk-eng")
            and not shown(p, "[role=tab][aria-controls=kk-tab-convert]")
            and not p.errors
        )


def test_a_model_that_cannot_be_used_is_told_and_the_built_in_voice_stays(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        health = Health(p, {**BASIC, "coming": COMING})
        p.page.wait_for_selector(".kk-eng .kk-second")
        health.tell(
            {**BASIC, "failure": "flow.pt is damaged.", "failure_zh": "flow.pt 已损坏。"}, "不可用"
        )
        assert p.page.get_attribute(
            ".kk-eng", "data-tone"
        ) == "warn" and "内置音色可用" in p.page.inner_text(".kk-eng")
        p.page.click(".kk-eng")
        assert "flow.pt 已损坏。" in p.page.inner_text(
            "#kk-engpop"
        ) and "继续用内置音色" in p.page.inner_text("#kk-engpop")
        assert p.violations() == []
        assert p.js("said") == ["CosyVoice2 不可用，继续使用内置音色"]


@pytest.mark.parametrize(
    ("lang", "why", "again", "says"),
    [
        ("zh", "四次失败。", "重试", "继续用内置音色"),
        ("en", "It failed four times.", "Try again", "goes on speaking"),
    ],
)
def test_a_model_that_broke_for_good_is_told_with_its_reason_and_can_be_tried_again(
    chrome, studio, lang, why, again, says
):
    with StudioPage(chrome, studio.url, lang) as p:
        posted, words = (
            [],
            {"failure": "It failed four times.", "failure_zh": "四次失败。", "again": True},
        )
        p.page.route(
            "**/tts/engine/*",
            lambda r: (
                posted.append(r.request.method + " " + r.request.url.split("/tts")[1]),
                r.fulfill(body="{}", content_type="application/json"),
            )[1],
        )
        health = Health(p, BIG)
        p.page.wait_for_function(
            "document.querySelector('.kk-eng').innerText.includes('CosyVoice2')"
        )
        health.tell(
            {
                **BIG,
                "state": "broken",
                "reason": words["failure"],
                "reason_zh": words["failure_zh"],
                **words,
            },
            p.js("KK.t('eng.broken')"),
        )
        p.page.click(".kk-eng")
        assert (
            p.page.inner_text("#kk-engpop").count(why) == 1
            and p.page.inner_text("#kk-engpop [data-do=engineagain]") == again
        )
        assert p.js("said") == [], "nothing stays while nobody speaks"
        health.tell({**BASIC, **words}, p.js("KK.t('eng.cannot', {e: 'CosyVoice2'})"))
        assert (
            why in p.page.inner_text("#kk-engpop")
            and says in p.page.inner_text("#kk-engpop")
            and p.violations() == []
        )
        assert p.js("said").pop() == p.js("KK.t('eng.now.cannot', {e: 'CosyVoice2'})")
        p.page.click("#kk-engpop [data-do=engineagain]")
        health.tell({**BASIC, "coming": COMING}, LOADING[lang])
        assert (
            posted == ["POST /engine/again"] and not p.page.locator("[data-do=engineagain]").count()
        )
        health.tell(
            {**BASIC, **words, "again": False}, p.js("KK.t('eng.cannot', {e: 'CosyVoice2'})")
        )
        assert not p.page.locator("[data-do=engineagain]").count() and not p.errors


def test_the_model_is_downloaded_from_the_pop_over(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        posted = []
        p.page.route(
            "**/tts/model/*",
            lambda r: (
                posted.append(r.request.method + " " + r.request.url.split("/tts")[1]),
                r.fulfill(body="{}", content_type="application/json"),
            )[1],
        )
        model = {
            "state": "none",
            "a": "0.0 MB",
            "b": "2.4 GB",
            "source": "modelscope",
            "sources": ["modelscope", "hf-mirror"],
        }
        health = Health(p, {**BASIC, "model": model})
        p.page.wait_for_selector("#kk-engpop [data-do=modelfetch]", state="attached")
        assert p.page.inner_text(".kk-eng").strip().endswith("内置音色可用"), (
            "nothing is on its way, so the pill says nothing of it"
        )
        p.page.click(".kk-eng")
        assert "2.4 GB" in p.page.inner_text("#kk-engpop")
        p.page.click("#kk-engpop [data-do=modelfetch]")
        model |= {"state": "downloading", "p": 43, "a": "1.0 GB", "m": 6}
        health.tell({**BASIC, "model": model}, "CosyVoice2 下载中 43%")
        assert "已下载 1.0 GB / 2.4 GB，约剩 6 分钟" in p.page.inner_text(
            "#kk-engpop"
        ) and "下载源：ModelScope。" in p.page.inner_text("#kk-engpop")
        assert (
            p.js("document.querySelector('#kk-engpop .kk-prog span').style.width") == "43%"
            and p.violations() == []
        )
        p.page.click("#kk-engpop [data-do=modelsource]")
        p.page.click("#kk-engpop [data-do=modelpause]")
        health.tell({**BASIC, "model": {**model, "state": "paused"}}, "暂停")
        p.page.click("#kk-engpop [data-do=modelfetch]")
        health.tell(
            {
                **BASIC,
                "model": {
                    **model,
                    "state": "failed",
                    "reason": "The disk is full.",
                    "reason_zh": "磁盘已满。",
                },
            },
            "下载中断",
        )
        assert "磁盘已满。" in p.page.inner_text("#kk-engpop") and p.violations() == []
        assert posted == [
            "POST /model/fetch",
            "POST /model/fetch?source=hf-mirror",
            "POST /model/pause",
            "POST /model/fetch",
        ]
        failed_source = {"source": "modelscope", "reason": "HTTP 404.", "reason_zh": "返回了 404。"}
        health.tell(
            {**BASIC, "model": {**model, "source": "hf-mirror", "p": 44, "left": failed_source}},
            "44%",
        )
        assert "下载源：HF Mirror，因为 ModelScope 下载失败：返回了 404。" in p.page.inner_text(
            "#kk-engpop"
        )
        health.tell(
            {
                **BASIC,
                "model": {
                    **model,
                    "source": "hf-mirror",
                    "p": 45,
                    "left": {"source": "modelscope"},
                },
            },
            "45%",
        )
        assert (
            "下载源：HF Mirror（手动从 ModelScope 换来）。" in p.page.inner_text("#kk-engpop")
            and p.violations() == []
        )
        health.tell(BASIC, "内置音色")
        assert not p.page.locator("#kk-engpop [data-do^=model]").count(), (
            "no word about a model where none can be fetched"
        )


MODELS = [{"name": "CosyVoice2-0.5B", "engine": "cosyvoice2", "state": "speaks"},
    {"name": "my <b>own</b>", "engine": "cosyvoice1", "state": "here"},
          {"name": "Fun-CosyVoice3-0.5B-2512", "engine": "cosyvoice3", "state": "none",
              "gb": 4.4}]  # fmt: skip


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_models_are_changed_and_fetched_from_the_settings_and_the_pill(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang) as p:
        posted = []
        p.page.route(
            "**/tts/*/*",
            lambda r: (
                posted.append(r.request.url.split("/tts")[1]),
                r.fulfill(body="{}", content_type="application/json"),
            )[1],
        )
        two = {**BIG, "title": "CosyVoice2-0.5B", "models": MODELS}
        health = Health(p, two)
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.wait_for_selector("#kk-models .kk-model")
        assert p.page.locator("#kk-models .kk-model b").all_inner_texts() == [
            m["name"] for m in MODELS
        ]
        assert "4.4 GB" in p.page.inner_text("#kk-models") and p.violations() == []
        assert (
            p.page.locator("#kk-models [data-do=modeluse]").count()
            == p.page.locator("#kk-models [data-do=modelget]").count()
            == 1
        )
        p.page.click("#kk-models [data-do=modelget]")
        p.page.click("#kk-models [data-do=modeluse]")
        p.page.click(".kk-eng")
        p.page.click("#kk-engpop [data-do=modeluse]")
        for _ in range(400):  # what was pressed last is on its way
            if len(posted) < 3:
                p.page.wait_for_timeout(50)
        assert posted == [
            "/model/fetch?model=Fun-CosyVoice3-0.5B-2512",
            *["/engine/use?model=my%20%3Cb%3Eown%3C%2Fb%3E"] * 2,
        ]
        assert p.violations() == []
        loading = [
            MODELS[0],
            {**MODELS[1], "state": "loads"},
            {**MODELS[2], "state": "downloading"},
        ]
        health.tell(
            {
                **two,
                "models": loading,
                "next": MODELS[1]["name"],
                "coming": COMING,
                "model": {"state": "downloading", "name": MODELS[2]["name"], "p": 7},
            },
            p.js("KK.t('eng.load', {e: 'my <b>own</b>', p: 43})"),
        )
        assert not p.page.locator("[data-do=modeluse]").count(), "one change at a time"
        assert (
            "7%" in p.page.inner_text("#kk-models")
            and p.page.locator("#kk-models [data-do=modelpause]").count() == 1
        )
        failed = {
            **two,
            "models": [MODELS[0], {**MODELS[1], "state": "failed"}, MODELS[2]],
            "failed": MODELS[1]["name"],
            "failure": "flow.pt is cut off.",
            "failure_zh": "flow.pt 不完整。",
        }
        health.tell(failed, p.js("KK.t('eng.cannot', {e: 'my <b>own</b>'})"))
        why, goes = (
            failed["failure_zh" if lang == "zh" else "failure"],
            p.js("KK.t('eng.d.goes', {e: 'CosyVoice2-0.5B'})"),
        )
        assert why in p.js("document.querySelector('#kk-engpop').textContent") and goes in p.js(
            "document.querySelector('#kk-engpop').textContent"
        )
        assert p.js("said.at(-1)") == p.js(
            "KK.t('eng.now.kept', {e: 'my <b>own</b>', by: 'CosyVoice2-0.5B'})"
        )
        health.tell(
            {
                **two,
                "title": MODELS[1]["name"],
                "engine": "cosyvoice1",
                "models": [
                    {**MODELS[0], "state": "here"},
                    {**MODELS[1], "state": "speaks"},
                    MODELS[2],
                ],
            },
            "my <b>own</b>",
        )
        assert (
            p.js("said.at(-1)") == p.js("KK.t('eng.now.full', {e: 'my <b>own</b>'})")
            and p.violations() == []
            and not p.errors
        )


def test_sound_tags_go_in_at_the_cursor_and_unknown_ones_are_caught(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        Health(p, BIG)
        p.page.wait_for_selector("[data-do=token]")
        p.page.fill("#kk-text textarea", "你好世界")
        p.js("() => { const e = KK.field('kk-text'); e.focus(); e.setSelectionRange(2, 2); }")
        p.page.click("[data-do=token][data-v='[laughter]']")
        assert p.page.input_value("#kk-text textarea") == "你好[laughter]世界"
        p.page.keyboard.type("啊")
        assert p.page.input_value("#kk-text textarea") == "你好[laughter]啊世界", (
            "typing goes on behind the tag"
        )
        p.js("() => KK.field('kk-text').setSelectionRange(13, 15)")
        p.page.click("[data-do=token][data-v^='<strong>']")
        assert p.page.input_value("#kk-text textarea") == "你好[laughter]啊<strong>世界</strong>"
        assert p.page.inner_text(".kk-lint") == "" and p.page.inner_text(".kk-count").startswith(
            "5 字"
        )
        p.page.fill("#kk-text textarea", "好[laugh]的<|zh|>")
        assert "[laugh]" in p.page.inner_text(".kk-lint")
        p.page.click(".kk-lint [data-do=retag]")
        assert p.page.input_value("#kk-text textarea") == "好[laughter]的<|zh|>"
        assert p.page.inner_text(".kk-lint") == "", (
            "the studio takes marks out: nothing is read aloud"
        )
        p.page.fill("#kk-text textarea", "好[giggle]的")
        p.page.click(".kk-lint [data-do=retag]")
        assert p.page.input_value("#kk-text textarea") == "好的" and p.violations() == []


def test_what_the_engine_cannot_do_is_said_beside_the_text(chrome, studio):
    """The player hands the sentences over as KK.player.notes."""
    with StudioPage(chrome, studio.url, "zh") as p:
        p.js(
            "() => { KK.player.notes = ['灰色的风格做不到。']; document.dispatchEvent(new"
            " CustomEvent('kk:player', {detail: {words: false}})); }"
        )
        assert (
            "灰色的风格做不到。" in p.page.inner_text(".kk-notes")
            and p.page.get_attribute(".kk-notes", "role") == "status"
        )
        assert p.violations() == []
        p.page.click(".kk-notes [data-do=noted]")
        assert p.page.inner_text(".kk-notes") == ""
        p.js(
            "() => { KK.player.notes = ['另一句。']; document.dispatchEvent(new"
            " CustomEvent('kk:player', {detail: {words: false}})); }"
        )
        assert "另一句。" in p.page.inner_text(".kk-notes")


@pytest.mark.parametrize("transport", ["ws", "fetch"])
@pytest.mark.parametrize(("lang", "sentence"), [("zh", "我只会哼。"), ("en", "I only hum.")])
def test_the_notes_of_a_stream_reach_the_page(chrome, studio, lang, sentence, transport):
    with StudioPage(chrome, studio.url, lang, query=f"&transport={transport}") as p:
        assert transport == "ws" or p.js("KK.player.via") == "fetch"
        p.instruct("sing seconds=1")
        p.go()
        p.until("done")
        assert sentence in p.page.inner_text(".kk-notes")
        p.instruct("seconds=1")
        p.go()
        p.page.wait_for_function("!document.querySelector('.kk-notes').innerText")


def test_all_figures_of_the_bar_on_a_phone(chrome, studio):
    with StudioPage(chrome, studio.url, "zh", size="phone") as p:
        p.instruct("seconds=1")
        p.go()
        p.until("done")
        p.page.click(".kk-figs")
        text = p.page.inner_text("#kk-figures")
        assert all(p.js("k => KK.t('m.' + k)", k) in text for k in ("first", "rtf", "buf", "under"))
        assert f"{p.js('KK.player.meter.first')}" in text and p.violations() == []
        p.page.click("#kk-figures button")
        assert not shown(p, "#kk-figures")
