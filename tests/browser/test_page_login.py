"""The way out of a page that was logged in to, and a socket whose token has grown old."""

from __future__ import annotations

import pytest

from tests.serve import running

from .studio_page import StudioPage

pytestmark = pytest.mark.browser
LEAVE = "[data-do=logout]"


@pytest.fixture(scope="module")
def locked():
    with running("--auth", "bob:secret", env={"KAIKOU_SILENT_S": "1"}) as studio:
        yield studio


def logged_in(chrome, studio, lang: str) -> StudioPage:
    login = chrome.new_context()
    page = login.new_page()
    page.goto(studio.url + "/login")
    page.fill("[name=user]", "bob")
    page.fill("[name=password]", "secret")
    page.click("button")
    page.wait_for_url(studio.url + "/")
    state = login.storage_state()
    login.close()
    return StudioPage(chrome, studio.url, lang, storage_state=state)


@pytest.mark.parametrize(("lang", "name"), [("zh", "退出登录"), ("en", "Log out")])
def test_who_logged_in_can_log_out_and_what_speaks_ends(chrome, locked, lang, name):
    with logged_in(chrome, locked, lang) as p:
        p.page.wait_for_selector(LEAVE)
        assert p.page.get_attribute(LEAVE, "aria-label") == name and p.violations() == []
        p.instruct("rtf=0.5 seconds=60")
        p.go()
        p.until("playing")
        p.page.click(LEAVE)
        p.page.wait_for_url(locked.url + "/login")
        p.page.goto(locked.url + "/")
        assert p.page.url == locked.url + "/login" and p.errors == []
        p.page.wait_for_function("async () => (await fetch('/tts/health')).status === 401")
    state = locked.state()
    assert not state["admitted"]


def test_where_nobody_logs_in_there_is_nothing_to_end(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        assert p.page.locator(LEAVE).is_hidden()


@pytest.mark.parametrize("token_s", [86400, 0.002])
def test_a_page_asks_for_another_token_when_its_own_is_half_as_old_as_it_may_be(
    chrome, locked, token_s
):
    """The studio closes its silent socket; the page comes back by itself, with a token that still
    counts.
    """
    with logged_in(chrome, locked, "en") as p:
        token_requests, links = (
            [],
            (
                "document.addEventListener('kk:link', () => { window.links = (window.links || 0) +"
                " 1 })"
            ),
        )

        def session(route):
            token_requests.append(1)
            route.fulfill(json={**route.fetch().json(), "token_s": token_s})

        p.context.route("**/tts/session", session)
        p.page.reload()
        p.ready()
        p.js(links)
        n = len(token_requests)
        p.page.wait_for_function("window.links >= 3", timeout=60000)
        assert (len(token_requests) > n) == (token_s < 1) and p.js("KK.player.via") == "ws"
        assert p.errors == []
