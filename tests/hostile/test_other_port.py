"""A page that another program serves on another port of this machine, in a real Chromium: it may
link to the studio and cannot make it do anything.
"""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager

import pytest

from tests.browser.harness import browser

pytestmark = pytest.mark.browser
WAYS = (
    "tts?text=Hello+there.&text_lang=en&ref_audio_path=alloy",
    "inference_sft?tts_text=Hello+there.&spk_id=alloy",
)
PAGE = """<!doctype html><title>other</title>
{elements}
<script>
  const urls = {urls};
  addEventListener("load", async () => {{
    for (const url of urls) {{
      for (const how of [{{mode: "no-cors"}}, {{mode: "no-cors", credentials: "include"}}])
        await fetch(url, how).catch(() => {{}});
      await new Promise(done => {{
        const s = new Audio(url);
        s.onerror = s.oncanplay = done;
        s.load();
      }});
      await new Promise(done => {{
        const f = document.createElement("iframe");
        f.onload = done;
        f.src = url;
        document.body.append(f);
      }});
    }}
    document.title = "tried";
  }});
</script>"""
ELEMENTS = (
    '<img src="{0}"><audio src="{0}" autoplay></audio><object data="{0}"></object><embed'
    ' src="{0}"><script src="{0}"></script><link rel="stylesheet" href="{0}">'
)


@contextmanager
def served(body: str):
    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            data = body.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}/"
        site.shutdown()


def test_a_page_of_another_port_cannot_make_the_studio_speak(studio):
    urls = [f"{studio.url}/{way}" for way in WAYS]
    page_html = PAGE.format(elements="".join(map(ELEMENTS.format, urls)), urls=urls)
    before = studio.state()["opened"]
    with browser() as chrome, served(page_html) as other:
        context = chrome.new_context()
        page = context.new_page()
        page.goto(studio.url + "/login")  # a visit of its own: what cookies there are go along
        answers: list[tuple[int, str]] = []
        page.on("response", lambda r: answers.append((r.status, r.url)))
        page.goto(other)
        page.wait_for_function("document.title === 'tried'", timeout=60000)
        tried = [status for status, url in answers if url.startswith(studio.url)]
        assert set(tried) == {403} and {url for _, url in answers} >= set(urls)
        for url in urls:  # not even by a link that is followed
            page.goto(other)
            page.evaluate("url => { location.href = url }", url)
            page.wait_for_url(url)
            assert "bad_origin" in page.content()
        page.goto(other)
        page.evaluate("url => { location.href = url }", studio.url + "/")
        page.wait_for_selector("html[data-kk=ready]", timeout=60000)
        context.close()
    assert studio.state()["opened"] == before, "the studio spoke for another program's page"
    answer = studio.client().get("/" + WAYS[0])
    assert answer.status_code == 200 and studio.state()["opened"] == before + 1, "a program may"
