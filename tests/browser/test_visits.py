"""What the tests' visits share is what was read and compiled, and nothing that a visitor has."""

from __future__ import annotations

import pytest

from .studio_page import StudioPage
from .visits import Visits

pytestmark = pytest.mark.browser
KEPT = (
    "async () => [document.cookie, {...localStorage}, {...sessionStorage}, (await"
    " indexedDB.databases()).length, await caches.keys()]"
)


def test_a_visit_finds_nothing_of_the_one_before(chrome, studio):
    visits, text_of_store = (
        Visits(chrome),
        "localStorage['kk.text']",
    )  # a while after the first words came
    with StudioPage(visits, studio.url, "en") as p:
        p.page.wait_for_function(text_of_store)
        fresh, me, cookies = (
            p.js(KEPT),
            p.context,
            {c["name"]: c["value"] for c in p.context.cookies()},
        )
        p.js(
            """async () => {
              localStorage.kk_left = sessionStorage.kk_left = document.cookie = "left=1";
              await caches.open("left");
              await new Promise(
                r =>
                  (indexedDB.open("left").onsuccess = e => {
                    e.target.result.close();
                    r();
                  })
              );
            }"""
        )
        p.page.route("**/*", lambda r: r.continue_())
        assert cookies and p.js(KEPT) != fresh
    with StudioPage(visits, studio.url, "en") as p:
        p.page.wait_for_function(text_of_store)
        assert p.context is me and p.js(KEPT) == fresh
        now = {c["name"]: c["value"] for c in p.context.cookies()}
        assert now.keys() == cookies.keys() and not set(now.values()) & set(cookies.values()), (
            "another visitor"
        )
    me.close()
