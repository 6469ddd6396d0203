"""Keys and demo links in the page, and the page of a link: made, shown once, copied, listed, taken
back; heard on a phone and in another site's frame.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from tests.serve import running

from .modules import EXPORTS
from .studio_page import AXE, RULES, StudioPage

pytestmark = pytest.mark.browser
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="164" height="164"><path d="M8'
    ' 8h148v148z"/></svg>'
)
# every sample that a context plays, kept: what is heard can be asked for
HEARD = """window.heard = 0;
    const make = AudioWorkletNode.prototype.connect;
    AudioWorkletNode.prototype.connect = function (to, ...more) {
      if (to instanceof AudioDestinationNode) {
        const look = this.context.createAnalyser();
        look.fftSize = 2048;
        make.call(this, look);
        const data = new Float32Array(2048);
        setInterval(() => {
          look.getFloatTimeDomainData(data);
          window.heard = Math.max(window.heard, ...data.map(Math.abs));
        }, 20);
      }
      return make.call(this, to, ...more);
    };"""


@pytest.fixture(scope="module")
def lone():
    """A studio of its own: keys close it for everyone."""
    with running() as studio:
        yield studio


def opened(chrome, lone, tab: str, **kw) -> StudioPage:
    p = StudioPage(chrome, lone.url, lang="en", **kw)
    p.page.click(f"[role=tab][aria-controls=kk-tab-{tab}]")
    return p


def share(p: StudioPage, sample: str = "Good evening.") -> dict:
    p.page.locator("[data-do=sharevoice]").first.click()
    p.page.fill("[data-share=sample]", sample)
    p.page.select_option("[data-share=max_uses]", "20")
    p.page.press("[data-share=sample]", "Enter")
    p.page.wait_for_selector("#kk-sharelink")
    return {
        "url": p.page.input_value("#kk-sharelink"),
        "frame": p.page.input_value("#kk-shareframe"),
    }


def violations(page) -> list[str]:
    page.evaluate(AXE)
    return page.evaluate(
        """rules =>
          axe.run(document, { runOnly: rules, resultTypes: ["violations"] }).then(r =>
            r.violations.map(
              v =>
                v.id +
                ": " +
                v.nodes
                  .slice(0, 3)
                  .map(
                    n =>
                      n.target.join(" ") + " " + (n.any[0] || n.all[0] || n.none[0] || {}).message
                  )
                  .join(" / ")
            )
          )""",
        RULES,
    )


def until(page, expression: str, limit_s: float = 20.0) -> None:
    """Asked from outside the page: its policy lets nothing be evaluated in it."""
    end = time.monotonic() + limit_s
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} did not become true"
        time.sleep(0.05)


def guest(chrome, url: str, size=(390, 844), lang: str = "en", init: str = HEARD, **kw):
    context = chrome.new_context(
        viewport={"width": size[0], "height": size[1]},
        has_touch=size[0] < 500,
        locale="zh-CN" if lang == "zh" else "en-US",
        **kw,
    )
    page = context.new_page()
    page.errors = []
    page.on("pageerror", lambda e: page.errors.append(str(e)))
    page.on("console", lambda m: page.errors.append(m.text) if m.type == "error" else None)
    page.add_init_script(EXPORTS + init)
    page.goto(url)
    page.wait_for_selector("html[data-demo=ready]")
    until(page, "!!window.KK")
    return context, page


# ---- links ---------------------------------------------------------------------------------------
def test_a_link_is_made_from_a_voices_card_listed_and_taken_back(chrome, lone):
    with opened(chrome, lone, "voices") as p:
        link = share(p)
        assert (
            link["url"].startswith(lone.url + "/d/")
            and link["url"] in link["frame"]
            and "<iframe" in link["frame"]
        )
        assert not p.page.locator(".kk-qr").count() and p.violations() == []
        p.page.click("[data-do=shareleave]")
        assert p.page.evaluate("document.activeElement.dataset.do") == "sharevoice"
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.locator("#kk-demos").scroll_into_view_if_needed()
        p.page.wait_for_selector("#kk-demos .kk-accrow")
        assert "0 of 20 uses" in p.page.inner_text(
            "#kk-demos .kk-accrow"
        ) and "Live" in p.page.inner_text("#kk-demos .kk-accrow")
        assert p.violations() == []
        p.page.locator("#kk-demos [data-do=demoask]").first.click()
        p.page.click("[data-do=demodrop]")
        p.page.wait_for_function(
            "document.querySelector('#kk-demos .kk-accrow').innerText.includes('Taken back')"
        )
        assert p.page.request.get(link["url"]).status == 403
        assert p.errors == []


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_qr_code_leads_to_an_address_that_was_chosen_and_on_loopback_there_is_none(
    chrome, lone, lang
):
    """The studio listens on loopback; what one on the network would tell is put into its answer."""
    with StudioPage(chrome, lone.url, lang) as p:
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        share(p)
        assert p.page.inner_text(".kk-share").count(p.js("KK.t('dm.local')")) == 1
        assert "--host 0.0.0.0 --auth" in p.page.input_value("#kk-sharehow")
        assert not p.page.locator(".kk-qr, #kk-share-at").count() and p.violations() == []
        p.page.click("[data-do=shareleave]")
        hosts, qr_urls = ["192.168.1.20:7860", "172.17.0.1:7860"], []

        def on_the_network(route) -> None:
            body = route.fetch().json()
            body["urls"] = [
                {"url": f"http://{host}{body['path']}", "interface": name}
                for host, name in zip(hosts, ("wlan0", "docker0"), strict=True)
            ]
            route.fulfill(status=201, json=body)

        def picture(route) -> None:
            qr_urls.append(parse_qs(urlsplit(route.request.url).query)["url"][0])
            route.fulfill(body=SVG, content_type="image/svg+xml")

        p.page.route("**/v1/demos", on_the_network)
        p.page.route("**/qr.svg*", picture)
        link = share(p)
        assert f"//{hosts[0]}/d/" in link["url"] and link["url"] in link["frame"]
        assert p.page.locator("#kk-share-at option").all_inner_texts() == [
            f"{hosts[0]} (wlan0)",
            f"{hosts[1]} (docker0)",
        ]
        p.page.select_option("#kk-share-at", "1")
        p.page.wait_for_function(
            "h => document.querySelector('.kk-qr').alt.includes(h)", arg=hosts[1]
        )
        assert p.page.evaluate("document.activeElement.id") == "kk-share-at"
        other = p.page.input_value("#kk-sharelink")
        assert f"//{hosts[1]}/d/" in other and other in p.page.input_value("#kk-shareframe")
        p.page.wait_for_function("document.querySelector('.kk-qr').complete")
        assert qr_urls == [link["url"], other] and p.violations() == [] and not p.errors


@pytest.mark.parametrize(
    ("lang", "size"), [("zh", (390, 844)), ("en", (320, 480)), ("en", (1280, 800))]
)
def test_the_page_of_a_link_speaks_on_a_phone_and_breaks_no_rule(chrome, lone, lang, size):
    with opened(chrome, lone, "voices") as p:
        link = share(p)
    context, page = guest(chrome, link["url"], size, lang)
    assert page.evaluate("document.documentElement.lang") == ("zh-CN" if lang == "zh" else "en")
    assert page.input_value("textarea") == "Good evening." and (
        "字" in page.inner_text("main")
    ) == (lang == "zh")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "it scrolls sideways"
    )
    page.fill("textarea", "One tone, two tones.")
    page.click("[data-do=go]")
    until(page, "KK.player.state === 'done' && window.heard > 0.01")
    assert (
        page.evaluate("KK.player.counters.underruns") == 0
        and page.evaluate("KK.player.url") is None
    )
    page.click(f"[data-do=lang][data-v={'en' if lang == 'zh' else 'zh'}]")
    assert ("字" in page.inner_text("main")) == (lang != "zh") and violations(page) == []
    assert page.errors == []
    context.close()


def test_a_guest_without_a_socket_saves_what_was_heard(chrome, lone):
    """The link opens no file of the studio's, whichever way the sound came."""
    with opened(chrome, lone, "voices") as p:
        link = share(p)
    context, page = guest(chrome, link["url"] + "?transport=fetch")
    page.click("[data-do=go]")
    until(page, "KK.player.state === 'done'")
    assert page.evaluate("[KK.player.via, KK.player.url]") == ["fetch", None]
    with page.expect_download() as down:
        page.click("[data-do=save]")
    assert (
        down.value.url.startswith("blob:")
        and down.value.path().stat().st_size > 1000
        and page.errors == []
    )
    context.close()


def test_a_dark_page_of_a_link_breaks_no_rule_and_one_that_ended_says_so(chrome, lone):
    with opened(chrome, lone, "voices") as p:
        link = share(p)
        context, page = guest(chrome, link["url"], color_scheme="dark")
        assert violations(page) == []
        rows = p.page.request.get(lone.url + "/v1/demos").json()["data"]
        p.page.request.delete(
            f"{lone.url}/v1/demos/{next(d['id'] for d in rows if d['url'] == link['url'])}"
        )
        page.click("[data-do=go]")
        until(page, "KK.player.state === 'failed'")
        assert "taken back" in page.inner_text("[role=status]")
        page.goto(link["url"])
        page.wait_for_selector("h1")
        assert (
            "taken back" in page.inner_text("main")
            and violations(page) == []
            and not page.locator("textarea").count()
        )
        context.close()


def test_a_link_works_in_another_sites_frame_and_the_studio_does_not(chrome, lone):
    with opened(chrome, lone, "voices") as p:
        link = share(p)

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = (
                f"<!doctype html>{link['frame']}"
                if self.path == "/demo"
                else f'<!doctype html><iframe src="{lone.url}/"></iframe>'
            ).encode()
            (
                self.send_response(200),
                self.send_header("Content-Type", "text/html"),
                self.send_header("Content-Length", str(len(body))),
                self.end_headers(),
            )
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        context = chrome.new_context()
        page = context.new_page()
        page.add_init_script(EXPORTS + HEARD)
        page.goto(f"http://localhost:{site.server_port}/demo")
        frame = page.frame_locator("iframe")
        frame.locator("html[data-demo=ready]").wait_for(state="attached")
        frame.locator("[data-do=go]").click()
        inner = next(f for f in page.frames if "/d/" in f.url)
        until(inner, "!!window.KK")
        until(inner, "KK.player.state === 'done' && window.heard > 0.01")
        blocked = []
        page.on("console", lambda m: blocked.append(m.text))
        page.goto(f"http://localhost:{site.server_port}/studio")
        for _ in range(400):  # what the browser has to say of it comes when it comes
            if not any("frame-ancestors" in text for text in blocked):
                page.wait_for_timeout(50)
        assert any("frame-ancestors" in text for text in blocked), (
            "the studio's own page may not be framed"
        )
        context.close()
        site.shutdown()


def test_a_list_that_was_asked_for_before_a_link_ended_does_not_bring_it_back(chrome, lone):
    with opened(chrome, lone, "voices") as p:
        share(p)
        pending = []
        p.page.route(
            "**/v1/demos",
            lambda r: (
                pending.append((r, r.fetch()))
                if not pending and r.request.method == "GET"
                else r.continue_()
            ),
        )
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.locator("#kk-demos").scroll_into_view_if_needed()
        for _ in range(400):
            if not pending:
                p.page.wait_for_timeout(50)
        p.js("KK.access.load('demos')")
        live = p.page.locator("#kk-demos [data-do=demoask]").count()
        p.page.locator("#kk-demos [data-do=demoask]").first.click()
        p.page.click("#kk-demos [data-do=demodrop]")
        p.page.wait_for_function("!document.querySelector('#kk-demos [data-do=demodrop]')")
        route, old = pending[0]
        with p.page.expect_response("**/v1/demos"):
            route.fulfill(response=old)
        p.page.wait_for_timeout(100)  # it would have been drawn
        assert p.page.locator("#kk-demos [data-do=demoask]").count() == live - 1 and not p.errors


# ---- keys: last, they close the studio -----------------------------------------------------------
def test_a_key_is_made_by_keyboard_shown_once_and_revoked(chrome, lone):
    with opened(chrome, lone, "settings") as p:
        p.page.locator("#kk-apikeys").scroll_into_view_if_needed()
        p.page.wait_for_selector("#kk-apikeys .kk-empty")
        assert "No keys yet" in p.page.inner_text("#kk-apikeys")
        p.page.fill("[name=kk-keys-name]", "robot")
        p.page.check("[data-scope=jobs]")
        p.page.press("[name=kk-keys-name]", "Enter")
        p.page.wait_for_selector("#kk-madekey")
        secret = p.page.input_value("#kk-madekey")
        assert (
            secret.startswith("kk_")
            and p.page.evaluate("document.activeElement.id") == "kk-madekey"
        )
        assert p.violations() == []
        p.page.wait_for_selector("#kk-apikeys .kk-accrow")
        assert lone.client().get("/v1/models").status_code == 401
        assert (
            lone.client().get("/v2/jobs", headers={"Authorization": f"Bearer {secret}"}).status_code
            == 200
        )
        p.page.click("[data-do=keyseen]")
        assert (
            secret not in p.page.content()
            and p.page.evaluate("document.activeElement.name") == "kk-keys-name"
        )
        p.page.reload()
        p.ready()
        p.page.click("[role=tab][aria-controls=kk-tab-speak]")
        p.page.fill("#kk-text textarea", "Still at home.")
        p.go()
        p.until("done")
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        p.page.locator("#kk-apikeys").scroll_into_view_if_needed()
        p.page.wait_for_selector("#kk-apikeys .kk-accrow")
        assert (
            secret not in p.page.content()
            and "robot" in p.page.inner_text("#kk-apikeys .kk-accrow")
            and "1 request " in p.page.inner_text("#kk-apikeys .kk-accrow")
        )
        with_stranger = chrome.new_context()
        stranger = with_stranger.new_page()
        stranger.goto(lone.url + "/")
        assert (
            stranger.url.endswith("/login")
            and stranger.locator("[name=key]").count() == 1
            and stranger.locator("[name=user]").count() == 0
            and violations(stranger) == []
        )
        with_stranger.close()
        p.page.click("[data-do=keyask]")
        assert (
            p.page.evaluate("document.activeElement.dataset.do") == "accesskeep"
            and p.violations() == []
        )
        p.page.click("[data-do=keydrop]")
        p.page.wait_for_function(
            "document.querySelector('#kk-apikeys .kk-accrow').innerText.includes('Revoked')"
        )
        assert lone.client().get("/v1/models").status_code == 200 and p.errors == []


def test_a_wrong_field_of_a_key_is_said_beside_it(chrome, lone):
    with opened(chrome, lone, "settings", size="phone") as p:
        p.page.wait_for_selector("#kk-apikeys form")
        p.page.press("[name=kk-keys-name]", "Enter")
        p.page.wait_for_function(
            "document.querySelector('#kk-apikeys .kk-accsay').dataset.tone === 'bad'"
        )
        assert (
            "name" in p.page.inner_text("#kk-apikeys .kk-accsay")
            and p.page.evaluate("document.activeElement.name") == "kk-keys-name"
        )
        assert (
            p.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            and p.violations() == []
        )
        assert json.loads(json.dumps(p.errors)) == [] and np.isfinite(p.js("performance.now()"))
