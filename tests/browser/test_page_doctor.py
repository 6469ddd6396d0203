"""The doctor beside a model in the settings: asked for with a press, followed while it runs, read
in the page's language, agreed to.
"""

from __future__ import annotations

import json

import pytest

from .studio_page import StudioPage
from .test_page_engine import BIG, Health

pytestmark = pytest.mark.browser
BEST = {"precision": "int8", "steps": 5}
FOUND = {
    "results": [
        {"item": "A", "status": "passed", "en": "All files are here.", "zh": "文件齐全。"},
        {
            "item": "E",
            "status": "failed",
            "en": "It <b>guesses</b>.",
            "zh": "它在<b>乱猜</b>。",
            "remedy_en": "Fetch it again.",
            "remedy_zh": "请重新下载。",
        },
    ]
}
WORDS = {
    "zh": ("尚未体检", "体检中：A ok", "已体检：2 项中 1 项正常", "采用 int8，5 步",
        "它在<b>乱猜</b>。 请重新下载。", "已采用推荐的 int8，5 步"),
    "en": ("Not examined yet", "Being examined: A ok", "Examined: 1 of 2 items in order",
        "Use int8, 5 steps", "It <b>guesses</b>. Fetch it again.",
        "uses the recommended int8, 5 steps"),
}  # fmt: skip


def with_doctor(**report) -> dict:
    model = {"name": "my model", "engine": "cosyvoice2", "state": "speaks", "doctor": report}
    return {**BIG, "title": "my model", "models": [model]}


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_model_is_examined_and_its_profile_agreed_to(chrome, studio, lang):
    none_text, runs, done, agree, finding, agreed = WORDS[lang]
    with StudioPage(chrome, studio.url, lang) as p:
        calls: list[str] = []

        def answer(route) -> None:
            request = route.request
            calls.append(f"{request.method} {request.url.partition('/tts/')[2]}")
            route.fulfill(body=json.dumps(FOUND), content_type="application/json")

        p.page.route("**/tts/model/*", answer)
        health = Health(p, with_doctor(state="none"))
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        card = p.page.locator("#kk-models .kk-doctor")

        def says(words: str) -> None:
            p.page.wait_for_function(
                "s => document.querySelector('#kk-models .kk-doctor')?.innerText.includes(s)",
                arg=words,
            )

        says(none_text)
        health.health = with_doctor(state="runs", line="A ok")
        card.locator("[data-do=modeldoctor]").click()
        says(runs)
        assert not card.locator("[data-do=modeldoctor]").count(), "it runs already"
        health.health = with_doctor(state="done", items=2, failed=1, profile=BEST, agreed=False)
        p.js("KK.askEngine()")
        says(done)
        card.locator("[data-do=modelreport]").click()
        says(finding)
        assert not card.locator("li b b").count(), "what was found is text"
        assert p.violations() == []
        health.health = with_doctor(state="done", items=2, failed=1, profile=BEST, agreed=True)
        assert card.locator("[data-do=modelagree]").inner_text() == agree
        card.locator("[data-do=modelagree]").click()
        says(agreed)
        assert not card.locator("[data-do=modelagree]").count()
        assert calls == [
            "POST model/examine?model=my%20model",
            "GET model/report?model=my%20model",
            "POST model/agree?model=my%20model",
        ]
