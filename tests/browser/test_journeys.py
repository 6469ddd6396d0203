"""Eleven journeys of a creator, each walked with real presses to its sound; how many presses it
takes and how soon it speaks is measured and printed.

python -m tests.browser.test_journeys          # the table of docs/journeys.md
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.serve import running

from .harness import ROOT
from .modules import EXPORTS
from .studio_page import StudioPage, browser
from .visits import Visits

pytestmark = pytest.mark.browser
SPEECH = sorted((ROOT / "assets" / "voices").glob("*.wav"))[0]
# Presses as the page gets them, whoever loads it again in between; the sound that was made,
# whichever way it is played.
COUNTED = """{
      const count = k => e => {
        if (e.isTrusted && !["Control", "Shift", "Alt", "Meta"].includes(e.key)) {
          sessionStorage[k] = 1 + Number(sessionStorage[k] || 0);
          window.pressedAt = performance.now();
        }
      };
      addEventListener("pointerdown", count("clicks"), true);
      addEventListener("keydown", count("keys"), true);
      window.delay = 0;
      new PerformanceObserver(l => {
        for (const e of l.getEntries()) delay = Math.max(delay, e.processingStart - e.startTime);
      }).observe({ type: "event", durationThreshold: 16, buffered: true });
      const play = HTMLMediaElement.prototype.play;
      HTMLMediaElement.prototype.play = function () {
        window.heard = this;
        const from = pressedAt;
        this.addEventListener("timeupdate", () => {
          window.heardMs ??= performance.now() - from;
        });
        return play.call(this);
      };
    }"""
LEVEL = """async which => {
      const tap =
        which === "player"
          ? KK.player.output.node
          : new AudioContext().createMediaStreamSource(heard.captureStream());
      const ear = new AnalyserNode(tap.context, { fftSize: 8192 }),
        x = new Float32Array(8192);
      tap.connect(ear);
      for (let loud = 0, n = 0; n < 400; n++) {
        ear.getFloatTimeDomainData(x);
        loud = Math.sqrt(x.reduce((s, v) => s + v * v, 0) / x.length);
        if (loud > 0.005) {
          tap.disconnect(ear);
          return loud;
        }
        await new Promise(r => setTimeout(r, 25));
      }
      return 0;
    }"""


class Walk(StudioPage):
    """One visit of a creator who presses, types and pastes, and listens."""

    first_ms = 0.0

    def __init__(self, chrome, url: str, lang: str, **more):
        super().__init__(chrome, url, lang, init=COUNTED, **more)
        self.lang = lang
        assert sum(s["v"] for s in self.js("shifts")) <= 0.1, self.js("shifts")

    def press(self, query: str) -> None:
        self.page.locator(query).first.click()

    def tab(self, name: str) -> None:
        self.press(f"[role=tab][aria-controls=kk-tab-{name}]")

    def generate(self, with_keys: bool = False) -> None:
        """And listen: what comes first, and that it is not silence."""
        if with_keys:
            self.page.keyboard.press("Control+Enter")
        else:
            self.press("#kk-player .kk-go")
        self.listen()

    def listen(self) -> None:
        self.page.wait_for_function(
            "KK.player.counters?.firstAudibleMs > 0 || KK.player.state === 'failed'", timeout=60000
        )
        assert self.js("KK.player.state") != "failed", self.status()
        self.first_ms = self.first_ms or self.js("KK.player.counters.firstAudibleMs")
        assert self.js(LEVEL, "player") > 0.005, "silence"

    def listen_beside(self) -> None:
        """What another player of the page plays: a take, a line of a batch."""
        self.page.wait_for_function("window.heardMs > 0")
        self.first_ms = self.first_ms or self.js("heardMs")
        assert self.js(LEVEL, "beside") > 0.005, "silence"

    def bring(self, data: bytes, name: str) -> None:
        """Through the file chooser, as a press on the drop zone opens it."""
        with self.page.expect_file_chooser() as chooser:
            self.press("#kk-ref .kk-drop")
        chooser.value.set_files({"name": name, "mimeType": "audio/wav", "buffer": data})

    def usable_clip(self) -> None:
        self.page.wait_for_function("KK.draft()", timeout=60000)
        self.press("#kk-consent label")
        self.page.wait_for_function("KK.ticked()")

    def end(self) -> tuple[int, int, float, float]:
        """Clicks, keys, first sound, longest input delay; and nothing for axe to find where it
        ends, in either language.
        """
        counts = self.js("['clicks', 'keys'].map(k => Number(sessionStorage[k] || 0))")
        figures = (*counts, self.first_ms, self.js("delay"))
        self.js("KK.player.stop()")
        for lang in (self.lang, "en" if self.lang == "zh" else "zh"):
            if self.js("KK.lang") != lang:
                self.js("l => KK.setLang(l)", lang)
            assert self.violations() == [], lang
        assert not self.errors
        return figures


def first_minute(chrome, url):
    with Walk(chrome, url, "zh") as w:
        w.generate()
        w.until("done", timeout_s=60)
        w.wait_takes(1)
        w.press("[data-do=playtake]")
        w.listen_beside()
        return w.end()


def recording(chrome, url):
    with Walk(chrome, url, "zh") as w:
        w.press("#kk-ref [data-do=soundsource][data-v=mic]")
        w.press("#kk-ref [data-do=recordclip]")
        w.page.wait_for_selector("#kk-ref [data-do=endclip][aria-disabled=false]")
        w.press("#kk-ref [data-do=endclip]")
        w.usable_clip()
        w.generate()
        assert w.js("KK.lastParams.voice").startswith("draft-")
        return w.end()


def odd_files(chrome, url):
    speech, rate = soundfile.read(SPEECH, dtype="float32")
    odd = io.BytesIO()
    soundfile.write(odd, np.stack([speech, speech], 1)[:: rate // 8000], 8000, format="FLAC")
    with Walk(chrome, url, "zh") as w:
        w.bring(b"not sound at all", "notes.wav")
        w.page.wait_for_selector("#kk-voice [role=alert], #kk-toast", state="visible")
        if not w.page.locator("#kk-ref .kk-drop").count():
            w.press("#kk-ref [data-do=removeclip]")
        w.bring(odd.getvalue(), "phone call.flac")
        w.usable_clip()
        w.generate()
        assert w.js("KK.lastParams.voice").startswith("draft-")
        return w.end()


def long_text(chrome, url):
    with Walk(chrome, url, "en") as w:
        w.press("#kk-text textarea")
        w.page.keyboard.press("Control+a")
        w.page.keyboard.insert_text("The road went on between the fields, and nobody spoke.\n" * 70)
        w.generate()
        w.page.keyboard.press("Escape")
        w.until("cancelled")
        return w.end()


def styles(chrome, url):
    with Walk(chrome, url, "zh") as w:
        w.press("#kk-style [data-v=happy]")
        w.page.wait_for_function("KK.mode() === 'instruct'")
        w.generate()
        assert w.js("KK.lastParams.instructions")
        return w.end()


def batch(chrome, url):
    with Walk(chrome, url, "en") as w:
        w.tab("batch")
        w.press("#kk-batchtext")
        w.page.keyboard.insert_text("The first line.\nThe second line.\nThe third line.")
        w.press("#kk-batchgo")
        w.page.wait_for_selector(".kk-job .kk-meter2[data-state=done]", timeout=60000)
        w.press(".kk-job [data-do=joblines]")
        w.press(".kk-jobrow [data-do=playline]")
        w.listen_beside()
        with w.page.expect_download() as zipped:
            w.press(".kk-job a[download]")
        assert zipped.value.path().stat().st_size > 10_000
        return w.end()


def models(chrome, url):
    with Walk(chrome, url, "zh") as w:
        w.press(".kk-eng")
        w.page.wait_for_selector("[popover]:popover-open .kk-engrow")
        w.page.keyboard.press("Escape")
        w.tab("settings")
        w.page.wait_for_selector("#kk-models .kk-model[data-state=none]")
        w.tab("speak")
        w.generate()
        return w.end()


def demo_links(chrome, url):
    with Walk(chrome, url, "en") as w:
        w.tab("voices")
        w.press("[data-do=sharevoice]")
        w.press("[data-shareform] [type=submit]")
        link = w.page.wait_for_selector("#kk-sharelink").evaluate("e => e.value ?? e.textContent")
        figures = w.end()
    with chrome.new_context(
        bypass_csp=True
    ) as stranger:  # what is asked here is no script of the page's
        guest = stranger.new_page()
        guest.add_init_script(EXPORTS + COUNTED)
        guest.goto(link)
        guest.wait_for_selector("html[data-demo=ready]")
        guest.wait_for_function("window.KK")
        if not guest.input_value("#kk-guesttext"):
            guest.click("#kk-guesttext")
            guest.keyboard.type("Good morning.")
        guest.click("#kk-player .kk-go")
        guest.wait_for_function("KK.player.counters?.firstAudibleMs > 0", timeout=60000)
        assert guest.evaluate(LEVEL, "player") > 0.005, "silence"
        more = guest.evaluate("['clicks', 'keys'].map(k => Number(sessionStorage[k] || 0))")
        first = guest.evaluate("KK.player.counters.firstAudibleMs")
        return (
            figures[0] + more[0],
            figures[1] + more[1],
            first,
            max(figures[3], guest.evaluate("delay")),
        )


def settings(chrome, url):
    with Walk(chrome, url, "en") as w:
        w.press("[data-do=theme]")
        w.tab("settings")
        w.page.wait_for_selector("#kk-set-keep input", state="attached")
        w.press("#kk-set-keep label >> nth=1")
        w.page.reload()
        w.ready()
        assert w.js("KK.store.get('theme')"), "what was chosen stays"
        w.tab("speak")
        w.generate()
        return w.end()


def phone_and_keyboard(chrome, url):
    with Walk(chrome, url, "zh", size="phone", is_mobile=True) as w:
        w.press("[data-do=fold]")
        w.press("#kk-health [data-do=demo] >> nth=2")
        w.listen_beside()
        w.press("[data-do=fold]")
        w.press("#kk-player .kk-go")
        w.page.wait_for_function("KK.player.counters?.firstAudibleMs > 0")
        w.page.keyboard.press("Escape")
        w.until("cancelled", "done")
        w.js("KK.player.counters = {}; document.activeElement.blur()")
        w.first_ms = 0
        w.page.keyboard.press("/")
        w.page.keyboard.press("Control+a")
        w.page.keyboard.type("早上好，今天天气不错。")
        w.generate(with_keys=True)
        return w.end()


def language_switch(chrome, url):
    with Walk(chrome, url, "zh") as w:
        text = w.js("KK.field('kk-text').value")
        w.generate()
        job = w.js("KK.player.job")
        w.press("[data-do=lang][data-v=en]")
        w.page.get_by_role("tab", name="Speak").wait_for()
        assert w.js("[KK.player.job, KK.field('kk-text').value]") == [job, text]
        assert w.js("KK.player.counters.underruns") == 0
        return w.end()


JOURNEYS = {
    "第一分钟 · first minute": first_minute,
    "录音 · recording": recording,
    "异常文件 · odd files": odd_files,
    "长文本 · long text": long_text,
    "风格 · styles": styles,
    "批量 · batch": batch,
    "模型 · models": models,
    "试听链接 · demo links": demo_links,
    "设置 · settings": settings,
    "手机与键盘 · phone and keyboard": phone_and_keyboard,
    "切换语言 · language switch": language_switch,
}


@contextmanager
def world(folder: Path):
    """The built-in voice, which anyone has, and a browser whose microphone hears speech."""
    flags = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    env = {"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_NATURAL": "0"}
    with (
        browser(*flags, f"--use-file-for-fake-audio-capture={SPEECH}") as b,
        running("--model-dir", str(folder), engine="auto", env=env) as studio,
    ):
        yield Visits(b), studio.url


def row(name: str, figures: tuple) -> str:
    clicks, keys, first_ms, delay_ms = figures
    return f"| {name} | {clicks} | {keys} | {first_ms:.0f} ms | {delay_ms:.0f} ms |"


HEAD = (
    (
        "| 旅程 · journey | 点击 · clicks | 按键 · key presses | 首音 · time to first sound |"
        " 输入延迟 · input delay |"
    ),
    "|---|---|---|---|---|",
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    with world(tmp_path_factory.mktemp("models")) as setup:
        yield setup


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey(workdir, name):
    figures = JOURNEYS[name](*workdir)
    print(row(name, figures))
    assert figures[0] + figures[1] > 0 and figures[2] > 0


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as setup:
        print(*HEAD, sep="\n")
        for name, walk in JOURNEYS.items():
            print(row(name, walk(*setup)), flush=True)


if __name__ == "__main__":
    main()
