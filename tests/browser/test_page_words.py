"""The dictionary in the page: add, change, delete, take back, in and out as a file; by keyboard
alone; and what is spoken with it.
"""

from __future__ import annotations

import pytest

from tests.serve import running

from .harness import PATIENT
from .studio_page import StudioPage

pytestmark = pytest.mark.browser
PATH = "/v1/pronunciations"
# the sentences of every `begin` that the player's worker was told
HEAR = (
    """window.begun = [];
    window.Worker = class extends Worker {
      constructor(...given) {
        super(...given);
        this.addEventListener(
          "message",
          e => e.data.ev === "begin" && begun.push(e.data.sentences)
        );
      }
    };"""
    + PATIENT
)  # only a socket tells sentences


@pytest.fixture(scope="module")
def lone():
    """A studio of its own, with the built-in voice: a dictionary belongs to the account, and
    without a login all visits are one.
    """
    with running(engine="builtin") as studio:
        yield studio


@pytest.fixture(autouse=True)
def empty(lone):
    with lone.client() as http:
        http.delete(PATH, params={"all": True})


def opened(p: StudioPage) -> StudioPage:
    p.page.click("[role=tab][aria-controls=kk-tab-settings]")
    p.page.wait_for_selector(".kk-wordfoot")
    p.page.locator(".kk-wordfoot").scroll_into_view_if_needed()  # asked for when it is seen
    p.page.wait_for_selector(
        ".kk-word, .kk-wordlist .kk-empty"
    )  # the studio has said what there is
    return p


def add(p: StudioPage, term: str, reading: str, language: str = "") -> None:
    n = p.page.locator(".kk-word").count()
    p.page.fill("#kk-word-term", term)
    p.page.fill("#kk-word-reading", reading)
    p.page.select_option("#kk-word-language", language)
    p.page.press("#kk-word-reading", "Enter")
    p.page.wait_for_function("n => document.querySelectorAll('.kk-word').length === n + 1", arg=n)


def rows(p: StudioPage) -> list[str]:
    return [" ".join(s.split()) for s in p.page.locator(".kk-word").all_inner_texts()]


def speak_text(p: StudioPage, text: str) -> list[str]:
    """The sentences that the studio began to speak."""
    p.page.click("[role=tab][aria-controls=kk-tab-speak]")
    p.page.fill("#kk-text textarea", text)
    n = p.js("begun.length")
    p.go()
    p.page.wait_for_function("n => begun.length === n + 1", arg=n)
    p.until("done")
    return p.js("begun.at(-1)")


@pytest.mark.parametrize(("lang", "everywhere"), [("zh", "所有语言"), ("en", "All languages")])
def test_a_term_is_added_and_spoken_then_changed_and_deleted(chrome, lone, lang, everywhere):
    with StudioPage(chrome, lone.url, lang, init=HEAR) as p:
        opened(p)
        add(p, "GPU", "G P U")
        add(p, "重庆", "崇庆", "zh")
        assert (
            rows(p)[0].startswith("GPU → G P U")
            and everywhere in rows(p)[0]
            and rows(p)[1].startswith("重庆 → 崇庆")
        )
        assert speak_text(p, "重庆的GPU，GPUs。") == ["崇庆的G P U，GPUs。"]
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.click(".kk-word:first-child [data-do=wordedit]")
        assert (
            p.js("document.activeElement.id") == "kk-word-reading"
            and p.page.input_value("#kk-word-reading") == "G P U"
        )
        p.page.fill("#kk-word-reading", "jee")
        p.page.fill("#kk-word-term", "GPUs")
        p.page.keyboard.press("Enter")
        p.page.wait_for_function("document.querySelector('.kk-wordterm').textContent === 'GPUs'")
        assert speak_text(p, "重庆的GPU，GPUs。") == ["崇庆的GPU，jee。"]
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.click(".kk-word:first-child [data-do=worddrop]")
        p.page.wait_for_function("document.querySelectorAll('.kk-word').length === 1")
        assert p.js("document.activeElement.dataset.do") == "worddrop", (
            "the focus stays in the list"
        )
        p.page.click("#kk-toast .kk-link")
        p.page.wait_for_function("document.querySelectorAll('.kk-word').length === 2")
        p.js("l => KK.setLang(l)", "en" if lang == "zh" else "zh")
        p.page.wait_for_function(
            "w => document.querySelector('.kk-word').textContent.includes(w)",
            arg="All languages" if lang == "zh" else "所有语言",
        )
        assert not p.errors


def test_a_refusal_is_a_sentence_beside_its_field(chrome, lone):
    with StudioPage(chrome, lone.url, "zh") as p:
        opened(p)
        for field, term, reading, word in (
            ("reading", "GPU", "", "怎么读"),
            ("term", "", "x", "换读法的词"),
            ("term", "[breath]", "x", "方括号"),
        ):
            p.page.fill("#kk-word-term", term)
            p.page.fill("#kk-word-reading", reading)
            p.page.focus("#kk-word-language")
            p.page.click("#kk-wordform [type=submit]")
            p.page.wait_for_function(
                "w => document.querySelector('.kk-wordsay').textContent.includes(w)", arg=word
            )
            assert p.js("document.activeElement.id") == f"kk-word-{field}"
            assert p.page.input_value("#kk-word-term") == term, "what was typed stays"
        assert rows(p) == [] and p.page.get_attribute(".kk-wordsay", "role") == "status"


def test_what_a_term_holds_is_shown_not_run(chrome, lone):
    with lone.client() as http:
        http.post("/tts/session")
        for term in (
            '<img src=x onerror="window.hit=1">',
            "'\"><script src=x>",
            "\u05e9\u05dc\u05d5\u05dd",
        ):
            assert (
                http.put(
                    PATH, json={"term": term, "reading": "<b>bold</b> x", "language": "fr"}
                ).status_code
                == 200
            )
    with StudioPage(chrome, lone.url, "en") as p:
        opened(p)
        p.page.wait_for_function("document.querySelectorAll('.kk-word').length === 3")
        assert (
            p.js("window.hit") is None and p.page.locator(".kk-words b, .kk-words img").count() == 0
        )
        p.page.click(".kk-word:first-child [data-do=wordedit]")
        assert p.page.input_value("#kk-word-language") == "fr", (
            "a language that the list does not offer is kept"
        )


def test_in_and_out_as_a_file(chrome, lone):
    with StudioPage(chrome, lone.url, "en") as p:
        opened(p)
        with p.page.expect_file_chooser() as chooser:
            p.page.click("[data-do=wordimport]")
        chooser.value.set_files(
            {
                "name": "words.csv",
                "mimeType": "text/csv",
                "buffer": "term,reading\nGPU,G P U\n重庆,崇庆,zh\n''=x,=y\n".encode("gb18030"),
            }
        )
        p.page.wait_for_function("document.querySelectorAll('.kk-word').length === 3")
        assert p.page.inner_text(".kk-wordsay") == "Imported: 3 new, 0 changed"
        read_entries = "async () => (await (await fetch('/v1/pronunciations')).json()).data"
        before = p.page.evaluate(read_entries)
        for kind in ("tsv", "csv"):
            with p.page.expect_download() as download:
                p.page.click(f".kk-wordfoot a[href$='.{kind}']")
            assert (
                "崇庆" in open(download.value.path(), encoding="utf-8-sig").read()
                and download.value.suggested_filename == f"pronunciations.{kind}"
            )
        with p.page.expect_file_chooser() as chooser:
            p.page.click("[data-do=wordimport]")
        chooser.value.set_files(
            {"name": "bad.tsv", "mimeType": "text/plain", "buffer": b"a\tb\nc\n"}
        )
        p.page.wait_for_function(
            "document.querySelector('.kk-wordsay').textContent.startsWith('Line 2')"
        )
        with p.page.expect_file_chooser() as chooser:
            p.page.click("[data-do=wordimport]")
        chooser.value.set_files(
            {"name": "big.tsv", "mimeType": "text/plain", "buffer": b"a\tb\n" * 300000}
        )
        p.page.wait_for_function(
            "document.querySelector('.kk-wordsay').textContent.includes('1 MB')"
        )
        assert len(rows(p)) == 3
        p.page.click("[data-do=wordall]")
        p.page.click("[data-do=wordkeep]")
        p.page.click("[data-do=wordall]")
        p.page.click("[data-do=wordclear]")
        p.page.wait_for_selector(".kk-wordlist .kk-empty")
        p.page.click("#kk-toast .kk-link")
        p.page.wait_for_function("document.querySelectorAll('.kk-word').length === 3")
        assert p.page.evaluate(read_entries) == before and ["'=x", "=y"] in [
            [e["term"], e["reading"]] for e in before
        ]
        assert not p.errors


def test_keyboard_alone_from_a_marked_word(chrome, lone):
    with StudioPage(chrome, lone.url, "en") as p:
        p.page.fill("#kk-text textarea", "My GPU sings.")
        p.js("KK.field('kk-text').setSelectionRange(3, 6)")
        p.page.focus("[data-do=words]")
        p.page.keyboard.press("Enter")
        p.page.wait_for_function("document.activeElement.id === 'kk-word-reading'")
        assert p.page.input_value("#kk-word-term") == "GPU"
        p.page.keyboard.type("G P U")
        p.page.keyboard.press("Enter")
        p.page.wait_for_selector(".kk-word")
        p.page.wait_for_function("document.activeElement.id === 'kk-word-term'")
        for _ in range(4):  # reading, language, Add, the entry's first button
            p.page.keyboard.press("Tab")
        assert (
            p.js("document.activeElement.dataset.do") == "wordedit"
            and p.js("document.activeElement.getAttribute('aria-label')") == "Change GPU"
        )
        p.page.keyboard.press("Enter")
        p.page.wait_for_selector("[data-do=wordleave]")
        p.page.keyboard.press("Escape")
        p.page.wait_for_selector("[data-do=wordleave]", state="detached")
        assert (
            p.js("document.activeElement.id") == "kk-word-term"
            and p.page.input_value("#kk-word-term") == ""
        )


def test_the_next_term_is_not_lost_while_the_last_is_on_its_way(chrome, lone):
    with StudioPage(chrome, lone.url, "en") as p:
        opened(p)
        pending = []
        p.page.route(
            "**/v1/pronunciations",
            lambda route: (
                pending.append(route) if route.request.method == "PUT" else route.continue_()
            ),
        )
        p.page.fill("#kk-word-term", "one")
        p.page.fill("#kk-word-reading", "uno")
        p.page.keyboard.press("Enter")
        p.page.fill("#kk-word-term", "two")
        for _ in range(500):
            if pending:
                break
            p.page.wait_for_timeout(20)
        assert len(pending) == 1
        pending[0].continue_()
        p.page.wait_for_selector(".kk-word")
        assert p.page.input_value("#kk-word-term") == "two"


def test_what_the_studio_said_before_does_not_come_back(chrome, lone):
    """What was asked when the list came into view is answered after what was asked when it had
    changed: list and focus stay.
    """
    with StudioPage(chrome, lone.url, "en") as p:
        pending = []

        def hold(route):
            if route.request.method != "GET" or pending:
                return route.continue_()
            pending.append((route, route.fetch()))

        p.page.route("**/v1/pronunciations", hold)
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.wait_for_selector(".kk-wordfoot")
        for _ in range(500):
            if pending:
                break
            p.page.wait_for_timeout(20)
        add(p, "GPU", "G P U")
        p.page.focus(".kk-word [data-do=wordedit]")
        route, answer = pending[0]
        with p.page.expect_response("**/v1/pronunciations"):
            route.fulfill(response=answer)
        p.page.wait_for_timeout(200)  # a draw would have come
        assert (
            rows(p) == ["GPU → G P U All languages"]
            and p.js("document.activeElement.dataset.do") == "wordedit"
        )
        p.js("() => { window.row = document.querySelector('.kk-word'); }")
        p.page.click("[role=tab][aria-controls=kk-tab-speak]")
        with p.page.expect_response("**/v1/pronunciations"):
            p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.wait_for_timeout(200)
        assert p.js("row.isConnected") and not p.errors, (
            "a look that brings nothing new touches nothing"
        )


def looked_at(p: StudioPage) -> list[str]:
    """In a window as long as the page: what else is half under a bar at the moment is not the
    question here.
    """
    size = p.page.viewport_size
    p.page.set_viewport_size({"width": size["width"], "height": 4000})
    violations = p.violations()
    p.page.set_viewport_size(size)
    return violations


@pytest.mark.parametrize(
    ("lang", "theme", "size"),
    [("zh", "light", "wide"), ("en", "dark", "phone"), ("zh", "dark", "tablet")],
)
def test_axe_finds_nothing_in_any_state_of_the_dictionary(chrome, lone, lang, theme, size):
    violations = {}
    with StudioPage(chrome, lone.url, lang, theme, size) as p:
        opened(p)
        violations["empty"] = looked_at(p)
        for n in range(10):
            add(p, f"term {n}", "reading " * n + "x", "en" if n % 2 else "")
        violations["many"] = looked_at(p)
        p.page.fill("#kk-word-search", "nothing like it")
        p.page.wait_for_selector(".kk-wordlist .kk-empty")
        violations["none found"] = looked_at(p)
        p.page.fill("#kk-word-search", "")
        p.page.click(".kk-word:first-child [data-do=wordedit]")
        p.page.fill("#kk-word-reading", "")
        p.page.click("#kk-wordform [type=submit]")
        p.page.wait_for_selector(".kk-wordsay[data-tone=bad]")
        violations["refused"] = looked_at(p)
        p.page.click("[data-do=wordall]")
        violations["asked"] = looked_at(p)
        assert {k: v for k, v in violations.items() if v} == {}
        assert p.js("document.documentElement.scrollWidth <= innerWidth")
        assert not p.errors
