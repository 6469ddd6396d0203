"""What a creator does beside the straight way: two tabs, a file let go anywhere, other noise, a
name with a picture, a second thought. Real studio, tone engine.
"""

from __future__ import annotations

import base64
import json

import pytest

from .studio_page import StudioPage, browser, clip

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chrome():
    with browser() as b:
        yield b


def says(p: StudioPage, words: str) -> None:
    p.page.wait_for_function(
        "s => document.querySelector('#kk-toast')?.innerText.includes(s)", arg=words
    )


def let_go(
    p: StudioPage, query: str, data: bytes, name: str = "mine.wav", mime: str = "audio/wav"
) -> bool:
    """Drag a file over `query` and let it go there.

    Whether the page kept the browser from opening it.
    """
    p.page.wait_for_selector(
        query, state="attached"
    )  # of a tab that is opened for the first time it comes later
    return (
        p.js(
            """([q, b64, name, type]) => {
              const bag = new DataTransfer();
              bag.items.add(
                new File([Uint8Array.from(atob(b64), c => c.charCodeAt(0))], name, { type })
              );
              const el = document.querySelector(q),
                go = kind =>
                  el.dispatchEvent(
                    new DragEvent(kind, {
                      dataTransfer: bag,
                      bubbles: true,
                      cancelable: true,
                      composed: true
                    })
                  );
              return !go("dragover") & !go("drop");
            }""",
            [query, base64.b64encode(data).decode(), name, mime],
        )
        == 1
    )


@pytest.mark.parametrize(
    ("lang", "words"), [("zh", "这条记录已经不在了"), ("en", "This take is gone")]
)
def test_a_take_that_another_tab_deleted_is_a_sentence_in_the_language_of_the_page(
    chrome, studio, lang, words
):
    with StudioPage(chrome, studio.url, lang) as p:
        p.page.fill("#kk-text textarea", "好的。")
        p.go()
        p.until("done")
        take = p.wait_takes(1)[0]
        p.js("id => fetch(`/v1/audio/takes/${id}`, {method: 'DELETE'})", take["id"])
        p.page.click(".kk-take [data-do=star]")
        says(p, words)
        p.wait_takes(0)
        assert p.page.locator(".kk-take").count() == 0


def test_a_text_that_was_never_begun_is_no_failed_take(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.page.fill("#kk-text textarea", "好的。")
        p.go()
        p.until("done")
        p.wait_takes(1)
        p.page.fill("#kk-text textarea", "字" * 5000)
        p.go()
        p.page.wait_for_function("KK.player.state === 'failed'")
        assert (
            p.page.locator(".kk-take").count() == 1
            and not p.page.locator(".kk-take[data-tone=bad]").count()
        )


def test_a_voice_is_edited_in_the_library_and_escape_leaves_the_stream_alone(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in()
        p.consent()
        p.page.fill("#kk-savename textarea, #kk-savename input", "🐼 阿宝")
        p.page.click("#kk-save")
        p.page.wait_for_function("KK.voices().some(v => v.name === '🐼 阿宝')")
        p.instruct("seconds=60")
        p.go()
        p.until("playing", "draining")
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        card = p.page.locator(".kk-voice", has_text="🐼 阿宝")
        assert card.locator(".kk-face").inner_text() == "🐼"
        card.locator("[data-do=editvoice]").click()
        p.page.fill("#kk-rename", "别的名字")
        assert p.violations() == []
        p.page.keyboard.press("Escape")
        assert not p.page.locator("#kk-rename").count() and p.js("KK.player.busy()")
        assert p.js("document.activeElement.dataset.do") == "editvoice"
        p.page.keyboard.press("Enter")
        p.page.fill("#kk-rename", "阿宝")
        p.page.fill("#kk-retell", "今天天气很好。")
        p.page.click("[data-rename] [type=submit]")
        p.page.wait_for_function(
            "KK.voices().some(v => v.name === '阿宝' && v.transcript === '今天天气很好。' &&"
            " v.language === 'zh')"
        )
        p.page.click("[data-do=askvoice]")
        p.page.click("[data-do=dropvoice]")
        p.page.wait_for_function("KK.voices().every(v => v.starter)")
        p.js("KK.player.stop()")
        assert not p.errors


def test_a_file_let_go_anywhere_is_the_clip_and_the_page_stays(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        assert let_go(p, "#kk-text textarea", clip())
        p.page.wait_for_selector(".kk-strip", state="attached")
        first = p.js("KK.draft().id")
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        assert let_go(p, "#kk-library h2", clip(6))  # one is in already, and another tab is shown
        p.page.wait_for_function(
            "id => KK.draft() && KK.draft().id !== id && KK.tabNow() === 'speak'", arg=first
        )
        assert p.js("Math.round(KK.draft().report.duration_s)") == 6
        assert let_go(p, "body", b"\x89PNG\r\n\x1a\n", "photo.png", "image/png")
        p.page.wait_for_selector("#kk-health .kk-warn[data-tone=bad] [data-do=dismiss]")
        assert "读不懂" in p.page.inner_text("#kk-health .kk-warn[data-tone=bad] span")
        assert p.js("Math.round(KK.draft().report.duration_s)") == 6, "the clip that is there stays"
        p.page.click("#kk-ref [data-do=removeclip] >> nth=0")
        p.page.wait_for_selector("#kk-health .kk-demo")
        assert let_go(p, "body", b"\x89PNG\r\n\x1a\n", "photo.png", "image/png")
        p.page.wait_for_selector("#kk-health .kk-warn[data-tone=bad]")
        assert "读不懂" in p.page.inner_text("#kk-health .kk-warn span")
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.wait_for_function("KK.tabNow() === 'settings'")
        assert let_go(p, "#kk-set-lang", clip()) and p.js("KK.tabNow()") == "settings"
        assert not p.errors


def test_saving_that_fails_says_so_where_it_said_that_it_saves(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in()
        p.consent()
        p.page.fill("#kk-savename textarea, #kk-savename input", "林晚")
        p.js("() => { KK.live.health.data.id = 'draft-gone'; }")
        p.page.click("#kk-save")
        p.page.wait_for_function(
            "document.querySelector('#kk-need').innerText.includes('这段参考音频已经不在了，"
            "请重新放入。')"
        )
        p.js("KK.setLang('en')")
        p.page.wait_for_function(
            "document.querySelector('#kk-need').innerText.includes('This clip is no longer here.')"
        )
        assert (
            p.page.input_value("#kk-savename textarea, #kk-savename input") == "林晚"
            and not p.errors
        )


def test_a_transcript_of_another_clip_is_asked_about(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in()
        p.page.fill("#kk-transcript textarea", "第一段录音里说的话。")
        assert p.page.is_checked("#kk-fits")
        p.page.click("#kk-text textarea")
        first = p.js("KK.draft().clip")
        p.upload(clip(6))
        p.page.wait_for_function("id => KK.draft() && KK.draft().clip !== id", arg=first)
        assert not p.page.is_checked("#kk-fits")
        assert p.page.input_value("#kk-transcript textarea") == "第一段录音里说的话。", (
            "what was typed is not thrown away"
        )


def test_noise_that_comes_and_goes_is_cleaned_otherwise(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in(clip(4, noise=0.02))

        def clean_queries():
            return [r.split("audio?")[1] for r in p.requests if "&varying=" in r]

        p.page.evaluate("document.querySelector('.kk-details').open = true")
        p.page.click("[data-do=ab][data-v=b]")
        p.page.wait_for_function("KK.listen.playing")
        assert sorted(clean_queries()) == ["clean=0&varying=false", "clean=0.6&varying=false"]
        p.page.select_option("#kk-noise", "varying")
        p.page.wait_for_function("KK.draft().varying")
        assert p.violations() == []
        before = p.js("KK.draft().id")
        p.page.check("#kk-useclean")
        p.page.wait_for_function(
            "id => KK.draft().id !== id && !KK.live.health.pending", arg=before
        )
        assert p.js(
            "[KK.draft().varying, KK.draft().clean, document.querySelector('#kk-noise').value]"
        ) == [True, 0.6, "varying"]
        p.page.click("[data-do=ab][data-v=a]")
        p.page.click("[data-do=ab][data-v=b]")
        p.page.wait_for_function("KK.listen.playing")
        assert "clean=0.6&varying=true" in clean_queries() and not p.errors


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_diagnostics_say_what_failed_and_nothing_that_was_written(chrome, studio, lang):
    with StudioPage(
        chrome, studio.url, lang, permissions=["clipboard-read", "clipboard-write"]
    ) as p:
        p.page.fill("#kk-text textarea", "Nobody else may read this.")
        p.instruct("fail=1")
        p.go()
        p.until("failed")
        p.page.click(".kk-eng")
        p.page.click("#kk-engpop [data-do=report]")
        says(p, {"zh": "诊断信息已复制", "en": "Diagnostics copied"}[lang])
        words = p.js("navigator.clipboard.readText()")
        report = json.loads(words)
        assert (
            report["player"]["code"] in ("fault", "err.net")
            and report["engine"]["version"]
            and report["player"]["counters"]["underruns"] == p.js("KK.player.counters.underruns")
        )
        assert "Nobody" not in words and "fail=1" not in words and not p.errors


@pytest.mark.parametrize(
    ("lang", "text", "notice"),
    [
        ("zh", "好的。", "以上语音由人工智能合成。"),
        ("en", "All right.", "This speech was generated by AI."),
    ],
)
def test_a_spoken_notice_is_wished_for_in_the_settings_and_remembered(
    chrome, studio, lang, text, notice
):
    """The tone engine sounds 0.15 s for each character it is given."""
    with StudioPage(chrome, studio.url, lang) as p:
        p.page.fill("#kk-text textarea", text)
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        assert not p.page.is_checked("#kk-set-notice input")
        before = studio.state()["notices"]
        with p.page.expect_response(
            lambda r: "/queue/join" in r.url and '"notice":true' in (r.request.post_data or "")
        ):
            p.page.check("#kk-set-notice input")
        for _ in range(400):  # it stands in a line before the studio knows of it
            if studio.state()["notices"] == before:
                p.page.wait_for_timeout(50)
        p.go()  # to the tab Speak, and there it speaks
        p.page.wait_for_function("KK.tabNow() === 'speak'")
        p.go()
        p.until("done")
        take = p.wait_takes(1)[0]
        assert (
            take["text"] == text
            and abs(take["n_samples"] / take["sample_rate"] - 0.15 * len(text + notice)) < 0.2
        )
        p.page.reload()
        p.page.wait_for_function(
            "document.documentElement.dataset.kk === 'ready' && KK.live.takes?.data?.length === 1"
        )
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.wait_for_function("document.querySelector('#kk-set-notice input').checked")
        assert not p.errors


def test_the_expected_length_follows_the_voice_and_the_speed(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        text = "这是一句用来量一量语速的话，不长也不短。"
        p.page.fill("#kk-text textarea", "")
        p.page.wait_for_function("document.querySelector('.kk-count').innerText === '0 字'")
        p.page.fill("#kk-text textarea", text)
        p.page.wait_for_function(
            "document.querySelector('.kk-count').innerText.includes('约 0:04')"
        )
        p.instruct("seconds=8")
        p.go()
        p.until("done")
        p.wait_takes(1)
        p.page.fill("#kk-text textarea", text + text)
        p.page.wait_for_function("/约 0:16/.test(document.querySelector('.kk-count').innerText)")
        p.page.click(".kk-adv > button")
        p.page.fill("#kk-speed input[type=number]", "2")
        p.page.wait_for_function("/约 0:08/.test(document.querySelector('.kk-count').innerText)")
