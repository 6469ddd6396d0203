"""The real page of the running studio in a real Chromium: open it, press things, ask what it
shows.
"""

from __future__ import annotations

import io
import wave
from pathlib import Path

import axe_playwright_python
import numpy as np
from playwright.sync_api import TimeoutError

from .harness import browser  # noqa: F401  (one place decides how Chromium is started)
from .modules import EXPORTS
from .visits import Visits

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
SIZES = {"wide": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# counts every shift, those within 500 ms of a press too: a bar that moves under the finger is what
# we look for
SHIFTS = """window.shifts = [];
    new PerformanceObserver(l => {
      for (const e of l.getEntries())
        shifts.push({
          v: e.value,
          t: e.startTime,
          who: e.sources
            .map(s => s.node && (s.node.nodeType === 1 ? s.node : s.node.parentElement))
            .filter(Boolean)
            .map(n => (n.closest("#kk-player") ? "bar" : (n.id || n.className || n.nodeName) + ""))
            .join(" | ")
        });
    }).observe({ type: "layout-shift", buffered: true });
    window.longest = 0;
    window.longtasks = 0;
    new PerformanceObserver(l => {
      for (const e of l.getEntries()) longtasks = Math.max(longtasks, e.duration);
    }).observe({ type: "longtask", buffered: true });"""
# what this browser remembers is put into the fields by a client event; the last of it is said as
# kk:mode
RESTORED = (
    """document.addEventListener("kk:mode", () => { window.restored = true; }, {once: true});"""
)


class StudioPage:
    """One visit of its own.

    `lang`, `theme`: as in the address; the browser's language is English unless said. `is_first`:
    this Chromium has nothing of the page yet.
    """

    def __init__(
        self,
        chrome,
        url: str,
        lang: str = "zh",
        theme: str = "light",
        size: str = "wide",
        query: str = "",
        init: str = "",
        is_first: bool = False,
        **context,
    ):
        w, h = SIZES[size]
        options = {
            "viewport": {"width": w, "height": h},
            "has_touch": size == "phone",
            "permissions": ["microphone"],
            **context,
        }
        self._visits = (
            chrome
            if isinstance(chrome, Visits) and not is_first and "storage_state" not in context
            else None
        )
        self.page, self.url = (
            (
                self._visits.begin(url, options)
                if self._visits
                else chrome.new_context(**options).new_page()
            ),
            url,
        )
        self.context = self.page.context
        self.page.set_default_timeout(20000)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.add_init_script(EXPORTS + SHIFTS + RESTORED + init)
        self.page.goto(f"{url}/?lang={lang}&theme={theme}{query}")
        self.ready()
        self.page.wait_for_timeout(150)  # what a page does when nobody wants anything of it

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if self._visits:
            self._visits.end(self.context, went_well=error is None)
        else:
            self.context.close()

    def ready(self) -> None:
        """Opened, or loaded again: what is typed from now on is not written over by what was
        remembered.
        """
        self.page.wait_for_function(
            "document.documentElement.dataset.kk === 'ready' && KK.live.picker?.data?.length &&"
            " KK.player.linked"
        )
        self.page.wait_for_function(
            "window.restored && KK.field('kk-text').value === (KK.store.get('text') ??"
            " KK.t('ex.1'))"
        )

    def js(self, expression: str, arg=None):
        return self.page.evaluate(expression, arg)

    def record_toasts(self) -> None:
        """From now on the page's `said` is a list of the sentences that were shown."""
        self.js(
            """() => {
              window.said = [];
              new MutationObserver(list => {
                for (const { target, addedNodes } of list)
                  if (target.id === "kk-toast")
                    for (const e of addedNodes)
                      if (e.nodeName === "SPAN") said.push(e.textContent);
              }).observe(document.getElementById("kk-app"), { childList: true, subtree: true });
            }"""
        )

    def until(self, *states: str, timeout_s: float = 30) -> None:
        self.page.wait_for_function(
            "s => s.includes(KK.player.state)", arg=list(states), timeout=timeout_s * 1000
        )

    def status(self) -> str:
        return self.page.inner_text("#kk-player [role=status]")

    def upload(self, data: bytes, name: str = "clip.wav", mime: str = "audio/wav") -> None:
        self.page.wait_for_selector(
            "#kk-ref :is(input[type=file], [data-do=removeclip])", state="attached"
        )
        if not self.page.locator(
            "#kk-ref input[type=file]"
        ).count():  # a clip is in: Gradio has taken its drop zone away
            self.page.locator("#kk-ref [data-do=removeclip]").first.click()
        self.page.set_input_files(
            "#kk-ref input[type=file]", {"name": name, "mimeType": mime, "buffer": data}
        )

    def clip_in(self, data: bytes | None = None) -> None:
        self.upload(clip() if data is None else data)
        self.page.wait_for_selector(".kk-strip", state="attached")

    def consent(self) -> None:
        self.page.check("#kk-consent input")

    def instruct(self, words: str) -> None:
        """The tone engine reads its orders from here: rtf, seconds, fail..."""
        self.page.fill("#kk-instruct input, #kk-instruct textarea", words)
        self.js("KK.setMode('instruct')")
        self.page.wait_for_function("KK.mode() === 'instruct'")

    def go(self) -> None:
        self.page.click("#kk-player [data-do=go]")

    def speak(self, n: int, engine: str) -> dict:
        """Press Generate; the n-th take, which must be finished and made by `engine`."""
        self.go()
        try:
            self.page.wait_for_function(
                "n => KK.live.takes.data.length === n || KK.player.state === 'failed'",
                arg=n,
                timeout=45000,
            )
        except TimeoutError as late:
            raise AssertionError(
                f"no take in mode {self.js('KK.mode()')}: {self.js('KK.player.state')},"
                f" {self.status()}, {len(self.takes())} takes"
            ) from late
        assert self.js("KK.player.state") != "failed", self.status()
        take = self.takes()[0]
        assert take["state"] == "done" and take["engine"] == engine and take["n_samples"] > 0, take
        self.js("KK.player.stop()")
        return take

    def takes(self) -> list[dict]:
        return self.js("KK.live.takes.data")

    def wait_takes(self, n: int) -> list[dict]:
        self.page.wait_for_function("n => KK.live.takes.data.length === n", arg=n)
        return self.takes()

    def violations(self) -> list[str]:
        """axe-core, all rules of WCAG 2.0-2.2 A and AA and best practice.

        What fades is waited for: half a colour has half the contrast.
        """
        if not self.js("!!window.axe"):
            self.page.evaluate(AXE)
        violations = self.js(
            """async rules => {
              const moves = document
                .getAnimations()
                .filter(
                  a => a.playState === "running" && a.effect.getComputedTiming().endTime < Infinity
                );
              await Promise.all(moves.map(a => a.finished.catch(() => {})));
              const run = (where, only) =>
                axe
                  .run(where, { runOnly: only, resultTypes: ["violations"] })
                  .then(r => r.violations);
              const found = await run(document, rules),
                at = [scrollX, scrollY];
              // what is half under the bar by chance of where the page is scrolled to can be
              // scrolled away from it: it is asked about there
              for (const v of found.filter(v => v.id === "target-size")) {
                const still = [];
                for (const n of v.nodes) {
                  document.querySelector(n.target[0])?.scrollIntoView({ block: "center" });
                  if (
                    (await run({ include: [n.target] }, { type: "rule", values: ["target-size"] }))
                      .length
                  )
                    still.push(n);
                }
                v.nodes = still;
              }
              scrollTo(...at);
              return found
                .filter(v => v.nodes.length)
                .map(
                  v =>
                    v.id +
                    ": " +
                    v.nodes
                      .slice(0, 3)
                      .map(
                        n =>
                          n.target.join(" ") +
                          " " +
                          (n.any[0] || n.all[0] || n.none[0] || {}).message
                      )
                      .join(" / ")
                );
            }""",
            RULES,
        )
        return violations


def clip(
    seconds: float = 5.0,
    rate: int = 24000,
    noise: float = 0.0,
    level: float = 1.0,
    cut: bool = False,
) -> bytes:
    """A WAV that passes for a voice: a buzzing tone with syllables, silent at both ends unless
    `cut`.
    """
    t = np.arange(int(seconds * rate)) / rate
    buzz = (
        sum(np.sin(2 * np.pi * 140 * k * t) / k for k in range(1, 40))
        * (0.15 + 0.85 * np.clip(np.sin(2 * np.pi * 3 * t), 0, 1))
        * 0.2
    )
    if not cut:
        edge = int(0.25 * rate)
        buzz[:edge] = buzz[-edge:] = 0
    buzz = (
        buzz * level
        + noise * np.random.default_rng(1).standard_normal(len(t))
        + 1e-4 * np.random.default_rng(2).standard_normal(len(t))
    )
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1), w.setsampwidth(2), w.setframerate(rate)
        w.writeframes((np.clip(buzz, -1, 1) * 32000).astype("<i2").tobytes())
    return out.getvalue()
