"""A plain page with the real player on it, in a real Chromium, at the address of the real studio.

No Gradio: what is tested here is sound.

The page listens to itself: a recorder node behind the ring keeps every sample that was rendered, so
tests can compare them one by one.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import wave
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Playwright, sync_playwright

from .modules import EXPORTS

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
GESTURES_NEEDED = "--autoplay-policy=document-user-activation-required"
RATE = 24000
TEXT = "One tone, two tones. Three tones."

RECORDER = """registerProcessor(
      "recorder",
      class extends AudioWorkletProcessor {
        constructor() {
          super();
          this.list = [];
          this.from = -1;
          this.port.onmessage = e => {
            if (e.data === "again") {
              this.list = [];
              this.from = -1;
            } else this.port.postMessage([this.from, ...this.list]);
          };
        }
        process(inputs) {
          const x = inputs[0][0];
          if (x && this.from < 0 && x.some(v => v)) this.from = currentFrame;
          if (this.from >= 0) this.list.push(x ? x.slice() : new Float32Array(128));
          return true;
        }
      }
    )"""

# A page that took 1.5 s to come gives the socket up, as it should; a busy machine's would, and what
# is asked of the socket would be asked of a plain response
PATIENT = """{ const tell = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (m, ...rest) {
    return tell.call(this, m?.op === "open" ? {...m, age_ms: -1e8} : m, ...rest);
  }; }"""

MODULES = [
    "player/controller",
    "player/view",
    "page/acts",
    "page/facts",
    "page/parts",
    "page/strings",
]
PAGE = """<!doctype html><meta charset="utf-8"><title>player</title>
<style>#bar .kk-canvas{position:relative;width:600px;height:44px} [hidden]{display:none}</style>
<button id="say">say</button><button id="other">other</button>
<div id="kk-text"><textarea id="text">%(text)s</textarea></div><div id="bar"></div>
<script type="application/json" id="kk-data">%(data)s</script>
<script>
window.gradio_config = {root: "%(root)s"};
const files = "%(files)s", done = [], states = [], fields = {};
let ask = {};
document.addEventListener("kk:unseen", e => { fields[e.detail.id] = e.detail.value; });
</script>
<script type="module">
const modules = await Promise.all(
  %(modules)s.map(name => import(`${files}/${name}.js`))
);
window.KK = new Proxy({}, { get: (_, name) => modules.find(m => name in m)?.[name] });
KK.live.player = {root: document.getElementById("bar"), trigger: (name, d) => {
  if (name === "done") done.push(d);
  else KK.player.start({input: document.getElementById("text").value, ...ask});
}};
KK.draw("player");
document.addEventListener("kk:player", () => {
  if (states.at(-1) !== KK.player.state) states.push(KK.player.state);
});
</script>
<script>
document.getElementById("say").addEventListener("click", () => KK.live.player.trigger("generate"));
/* Everything the ring renders, from its first sound on. */
async function record() {
  const node = KK.player.output.node;
  if (window.tape?.of === node) return;
  const code = new Blob([%(recorder)s], {type: "text/javascript"});
  await node.context.audioWorklet.addModule(URL.createObjectURL(code));
  const tape = new AudioWorkletNode(node.context, "recorder", {numberOfOutputs: 0});
  node.connect(tape);
  window.tape = {of: node, port: tape.port};
}
async function rendered() {
  const list = await new Promise(r => {
    tape.port.onmessage = e => r(e.data);
    tape.port.postMessage(0);
  });
  const all = new Float32Array((list.length - 1) * 128);
  list.slice(1).forEach((x, i) => all.set(x, i * 128));
  const bytes = new Uint8Array(all.buffer); let s = "";
  for (let i = 0; i < bytes.length; i += 32768)
    s += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(s);
}
</script>"""


def chromium() -> str | None:
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


_drivers: list[Playwright] = []  # the one that runs: a thread may have one


@contextmanager
def driver():
    if _drivers:
        yield _drivers[0]
        return
    with sync_playwright() as p:
        _drivers.append(p)
        try:
            yield p
        finally:
            _drivers.clear()


@contextmanager
def browser(*flags: str):
    with driver() as p:
        b = p.chromium.launch(executable_path=chromium(), args=[*FLAGS, *flags])
        yield b
        b.close()


def clip(seconds: float = 4.0, rate: int = 24000) -> bytes:
    """A WAV that passes for a voice: a buzzing tone with syllables."""
    t = np.arange(int(seconds * rate)) / rate
    buzz = (
        sum(np.sin(2 * np.pi * 140 * k * t) / k for k in range(1, 12))
        * (0.15 + 0.85 * np.clip(np.sin(2 * np.pi * 3 * t), 0, 1))
        * 0.2
    )
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1), w.setsampwidth(2), w.setframerate(rate)
        w.writeframes((np.clip(buzz, -1, 1) * 32000).astype("<i2").tobytes())
    return out.getvalue()


def page_html(root: str, version: str, lang: str = "en") -> str:
    def strings(code):
        return json.loads((ROOT / "assets" / "lang" / f"{code}.json").read_text("utf-8"))

    return PAGE % {
        "text": TEXT,
        "data": json.dumps(
            {
                "facts": {"version": version, "lang": lang},
                "strings": {"zh": strings("zh"), "en": strings("en")},
                "bar": (ROOT / "assets" / "player" / "player.html").read_text("utf-8"),
            }
        ).replace("<", "\\u003c"),
        "root": root,
        "files": f"{root}/tts/static/{version}",
        "modules": json.dumps(MODULES),
        "recorder": json.dumps(RECORDER),
    }


class Player:
    """One page.

    `url`: the studio, or a proxy before it (with its sub-path). is_touched False: nothing that
    counts as a gesture is done to it, and an evaluated expression is one.
    """

    def __init__(
        self,
        context,
        url: str,
        query: str = "",
        voice: str | None = None,
        lang: str = "en",
        is_touched: bool = True,
    ):
        self.page, self.url = context.new_page(), url
        self.errors: list[str] = []
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.add_init_script(PATIENT)
        version = context.request.post(url + "/tts/session").json()["version"]
        self.voice = voice or make_voice(context, url)
        self.page.route(
            "**/player-test*",
            lambda r: r.fulfill(body=page_html(url, version, lang), content_type="text/html"),
        )
        self.page.goto(f"{url}/player-test{query}")
        self._debugger = context.new_cdp_session(self.page)
        if is_touched:
            self.page.wait_for_function("window.KK?.player?.linked")
        else:
            while not self.raw("!!(window.KK && KK.player && KK.player.linked)"):
                self.page.wait_for_timeout(20)

    def raw(self, expression: str):
        """What `expression` is, asked for without a gesture."""
        return self._debugger.send(
            "Runtime.evaluate",
            {"expression": expression, "userGesture": False, "returnByValue": True},
        )["result"].get("value")

    def js(self, expression: str, arg=None):
        return self.page.evaluate(expression, arg)

    def ask(self, **fields) -> None:
        """What the next press of the button will say."""
        self.js(
            "f => { ask = f }",
            {"voice": self.voice, "mode": "instruct", "seed": 1, "consent": True, **fields},
        )

    def warm(self) -> None:
        """A click beside everything: the context runs and the ring is in place."""
        self.page.click("#other")
        self.page.wait_for_function("KK.player.output.node && KK.player.output.running()")
        self.js("record()")

    def say(self, instructions: str = "", **fields) -> None:
        self.ask(instructions=instructions, **fields)
        self.page.click("#say")

    def until(self, *states: str, timeout_s: float = 30) -> None:
        self.page.wait_for_function(
            "s => s.includes(KK.player.state)", arg=list(states), timeout=timeout_s * 1000
        )

    def as_soon_as(self, state: str, then: str) -> None:
        """`then` is done by the page itself, once, when the player next says `state`: a call from
        here may come when that is over.
        """
        self.js(
            f"""state => document.addEventListener("kk:player", function seen() {{
            if (KK.player.state !== state) return;
            document.removeEventListener("kk:player", seen);
            {then};
        }})""",
            state,
        )

    def plays_on(self, seconds: float) -> None:
        """Until the clock of the sound has gone on by so much: a busy machine's own clock says
        little of what was rendered.
        """
        self.page.wait_for_function(
            "end => KK.player.output.ctx.currentTime >= end",
            arg=self.js("KK.player.output.ctx.currentTime") + seconds,
        )

    @property
    def counters(self) -> dict:
        return self.js("KK.player.counters")

    def rendered(self) -> np.ndarray:
        """float32 (n,): what left the ring since its first sound."""
        import base64

        return np.frombuffer(base64.b64decode(self.js("rendered()")), np.float32)


class Studio(Player):
    """The real page, Gradio and all. Same words as Player; the engine cannot be told anything."""

    def __init__(self, context, url: str, query: str = "?lang=en", voice: str | None = None):
        self.page, self.url, self.errors = context.new_page(), url, []
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.add_init_script(EXPORTS)
        context.request.post(url + "/tts/session")
        self.voice = voice or make_voice(context, url)
        self.page.goto(f"{url}/{query}")
        self.page.wait_for_selector("html[data-kk=ready]", timeout=30000)
        self.page.wait_for_function("window.KK?.player?.linked")
        self.page.fill("#kk-text textarea", TEXT)
        self.js("id => { KK.pick.saved = id; KK.choose('kk-source', 'saved'); }", self.voice)
        self.page.wait_for_function("id => KK.voiceId() === id", arg=self.voice)

    def warm(self) -> None:
        self.page.mouse.click(700, 8)
        self.page.wait_for_function("KK.player.output.node && KK.player.output.running()")

    def say(self, instructions: str = "", **fields) -> None:
        self.page.click("#kk-player .kk-go")


def make_voice(context, url: str) -> str:
    answer = context.request.post(
        url + "/v1/audio/voices",
        multipart={
            "name": "tone",
            "consent": "test",
            "transcript": "tone",
            "audio_sample": {"name": "a.wav", "mimeType": "audio/wav", "buffer": clip()},
        },
    )
    assert answer.ok, answer.text()
    return answer.json()["id"]


def wav_samples(data: bytes) -> np.ndarray:
    """int16 (n,) of a WAV whose header must be true to the byte."""
    assert data[:4] == b"RIFF" and struct.unpack("<I", data[4:8])[0] == len(data) - 8
    at = 12
    while data[at : at + 4] != b"data":
        at += 8 + struct.unpack("<I", data[at + 4 : at + 8])[0]
    n = struct.unpack("<I", data[at + 4 : at + 8])[0]
    assert at + 8 + n == len(data)
    return np.frombuffer(data[at + 8 :], "<i2")
