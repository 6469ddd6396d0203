"""What every row of the table is handed: the studio, the browser, how often to repeat.

Rows name themselves here, in the order of the table.
"""

from __future__ import annotations

from tests.browser.harness import Player, Studio

FREE = {
    "KAIKOU_STARTS_PER_MINUTE": "100000",
    "KAIKOU_MAX_STREAMS_PER_VISITOR": "64",
    "KAIKOU_MAX_STREAMS": "64",
}
ROWS: dict[str, tuple[str, object]] = {}


def row(name: str, case: str):
    def add(f):
        ROWS[name] = (case, f)
        return f

    return add


class Bench:
    def __init__(self, studio, b, times: int):
        self.studio, self.browser, self.times = studio, b, times
        self.url = studio.url

    def plain(self, url: str = "", query: str = "", **kw) -> Player:
        return Player(self.browser.new_context(), url or self.url, query, **kw)

    def page(self, url: str = "", query: str = "?lang=en") -> Studio:
        return Studio(
            self.browser.new_context(viewport={"width": 1440, "height": 900}),
            url or self.url,
            query,
        )
