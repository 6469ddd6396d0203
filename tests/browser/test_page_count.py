"""The count beside the text: from the studio's own preparation, asked seldom, and the page's guess
where no answer comes.
"""

from __future__ import annotations

import json
import math

from tests.browser.harness import PATIENT
from tests.browser.studio_page import StudioPage

PATH = "**/v1/text/prepare"
SMITH = "Dr. Smith paid $1,234.56 … https://example.com/a?b=1 now!"
TIME_ENDS = "text => document.querySelector('.kk-time').innerText.endsWith(text)"
COUNT = "document.querySelector('.kk-count').innerText"


def estimate_answer(n: int, seconds: float = 10.0) -> dict:
    body = {"segments": [], "characters": 1000 + n, "sentences": n, "seconds": seconds}
    return {"status": 200, "content_type": "application/json", "body": json.dumps(body)}


def clock(seconds: float) -> str:
    return f"0:{math.floor(seconds + 0.5):02d}"


def is_of_smith(response) -> bool:
    """Of the page's first text, too, an answer may come late."""
    is_asked = response.url.endswith(PATH.removeprefix("**"))
    return is_asked and response.request.post_data_json["text"] == SMITH


def test_sentences_and_seconds_are_the_studios(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        with p.page.expect_response(is_of_smith) as answer:
            p.page.fill("#kk-text textarea", SMITH)
        estimate = answer.value.json()
        assert estimate["sentences"] == 1
        expected = f"{len(SMITH)} 字 · 1 句 · 约 {clock(estimate['seconds'])}"
        p.page.wait_for_function(f"{COUNT} === {json.dumps(expected)}")
        assert p.violations() == [] and not p.errors


def test_one_question_when_the_typing_rests_and_none_for_what_is_known(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        requests = []
        p.page.route(
            PATH,
            lambda route: (
                requests.append(route.request.post_data_json),
                route.fulfill(**estimate_answer(7)),
            ),
        )
        p.page.fill("#kk-text textarea", "")
        p.page.wait_for_function(f"{COUNT} === '0 字'")
        requests.clear()
        p.js(
            """() => {
              for (let n = 1; n <= 40; n++) {
                KK.setField("kk-text", "字".repeat(n));
                KK.recount();
              }
              for (let n = 0; n < 40; n++) document.dispatchEvent(new CustomEvent("kk:engine"));
            }"""
        )
        p.page.wait_for_function(f"{COUNT}.startsWith('1007 字 · 7 句')")
        assert requests == [{"text": "字" * 40, "language": "auto"}]
        p.js("() => { for (let n = 0; n < 9; n++) KK.recount(); }")
        p.page.fill("#kk-text textarea", "字" * 5000)
        p.page.wait_for_function(f"{COUNT}.includes('超出')")
        p.page.wait_for_timeout(500)
        assert len(requests) == 1, "a text that cannot be spoken is not asked about"


def test_an_overtaken_answer_is_dropped_and_without_one_the_pages_guess_stands(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        pending = []
        p.page.route(PATH, lambda route: pending.append(route))
        with p.page.expect_request(PATH):
            p.page.fill("#kk-text textarea", "第一句话。")
        p.page.wait_for_function(f"{COUNT}.startsWith('5 字 · 1 句')")
        with p.page.expect_request(PATH):
            p.page.fill("#kk-text textarea", "第一句话。第二句话。")
        p.page.wait_for_function(f"{COUNT}.startsWith('10 字 · 2 句')")
        first, second = pending
        second.fulfill(**estimate_answer(8))
        p.page.wait_for_function(f"{COUNT}.startsWith('1008 字 · 8 句')")
        try:
            first.fulfill(**estimate_answer(9))
        except Exception as error:  # the page has let go of it
            assert "abort" in str(error).lower() or "cancel" in str(error).lower()
        with p.page.expect_request(PATH):
            p.page.fill("#kk-text textarea", "三。")
        p.page.wait_for_function(f"{COUNT}.startsWith('2 字 · 1 句')")
        with p.page.expect_response(PATH):
            pending[2].fulfill(status=503, body="{}")
        p.js("() => KK.recount()")
        assert p.js(COUNT).startswith("2 字 · 1 句") and len(pending) == 3, "it is not asked again"


def test_card_bar_and_take_count_alike(chrome, studio):
    """Three sentences that are spoken in four goes; the second time the voice's own pace is
    known.
    """
    with StudioPage(chrome, studio.url, "zh", init=PATIENT) as p:
        p.page.fill("#kk-text textarea", "清晨的风从窗口吹进来，很轻很轻。我写下来。你听！")
        p.instruct("rtf=0.1 first=1 seconds=12")
        for n in (1, 2):
            p.go()
            p.until("playing")
            p.page.wait_for_function(
                "/^第 [1-3] \\/ 3 句/.test(document.querySelector('#kk-player"
                " [role=status]').innerText)"
            )
            if n == 2:
                p.page.wait_for_function(TIME_ENDS, arg="0:12")
            p.until("done")
            take = p.wait_takes(n)[0]
            length = clock(take["n_samples"] / take["sample_rate"])
            assert length in p.status()
            p.page.wait_for_function(TIME_ENDS, arg=length)
            assert p.page.inner_text(".kk-take .kk-mini time") == length
            p.page.wait_for_function(f"{COUNT}.endsWith(' · 3 句 · 约 0:12')")
