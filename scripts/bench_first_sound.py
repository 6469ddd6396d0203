"""From a trusted click to sound, in a real Chromium: warm page, cold page, fallback transport, a
new clip, and Gradio's own streaming player.

All rows use the built-in engine's instant voice, the last its natural one, and run one after
another in the same call. Time zero is the click event; "rendered" is the first quantum the audio
thread rendered, "speech" its first sample above 0.01, "heard" adds the output latency. Gradio's row
is gr.Audio(streaming=True, autoplay=True) fed by the same engine, its time the first moment at
which the <audio> element's clock moves.

    python scripts/bench_first_sound.py --times 10
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.browser.modules import EXPORTS  # noqa: E402

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=document-user-activation-required",
]
TEXT = "清晨的风从窗口吹进来。我把要说的话写下来，它立刻就开口了。"
# a short clause first
NATURAL_TEXT = "清晨的风，从窗口吹进来。我把要说的话写下来，它立刻就开口了。"
CLIP = ROOT / "assets" / "voices"


def chromium() -> str:
    paths = [
        p
        for n in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
        if (p := shutil.which(n))
    ]
    return paths[0] if paths else ""


@contextlib.contextmanager
def studio(natural: bool = False):
    """natural: the natural voice is loaded, and the usual one."""
    with tempfile.TemporaryDirectory(prefix="kaikou-bench-") as data:
        port = 7700 + os.getpid() % 90
        env = {
            **os.environ,
            "KAIKOU_STARTS_PER_MINUTE": "6000",
            "KAIKOU_NATURAL": str(int(natural)),
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "webui",
                "--engine",
                "builtin",
                "--port",
                str(port),
                "--data-dir",
                data,
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            env=env,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(300):
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(url + "/health/ready", timeout=5).status_code == 200:
                        break
                time.sleep(0.2)
            while natural and httpx.get(url + "/tts/health").json()["natural"] == "starting":
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            process.wait(20)


NO_SOCKET = (
    b"self.WebSocket = class { constructor() { setTimeout(() => this.onclose?.({})) } close() {}"
    b" send() {} };\n"
)


def open_page(browser, url: str, without_socket: bool = False, text: str = TEXT):
    page = browser.new_page(viewport={"width": 1440, "height": 900}, locale="zh-CN")
    if without_socket:
        page.route(
            "**/transport.js",
            lambda route: route.fulfill(response=(r := route.fetch()), body=NO_SOCKET + r.body()),
        )
    page.add_init_script(EXPORTS)
    page.goto(url + "/?lang=zh")
    page.wait_for_selector("html[data-kk=ready]", timeout=30000)
    page.wait_for_function("KK.live.picker?.data?.length > 0 && KK.voices().length > 0")
    page.evaluate("KK.setMode('preset')")
    page.fill("#kk-text textarea", text)
    page.wait_for_timeout(1800)
    return page


def speak(page) -> dict:
    """One click on Generate; the counters of the ring once speech was rendered.

    Stops it afterwards.
    """
    page.evaluate("KK.player.counters = {}")
    page.click("[data-do=go]")
    page.wait_for_function("KK.player.counters?.firstAudibleMs > 0", timeout=20000)
    counters = page.evaluate("KK.player.counters")
    page.wait_for_timeout(300)
    page.keyboard.press("Escape")
    page.wait_for_timeout(250)
    return {
        "rendered": counters["firstRenderedMs"],
        "speech": counters["firstAudibleMs"],
        "heard": counters.get("firstHeardMs")
        or counters["firstAudibleMs"] + 1000 * counters["outputLatency"],
    }


def warm(browser, url: str, times: int) -> list[dict]:
    page = open_page(browser, url)
    speak(page)
    timings = [speak(page) for _ in range(times)]
    page.close()
    return timings


def natural(browser, url: str, times: int) -> list[dict]:
    page = open_page(browser, url, text=NATURAL_TEXT)
    page.click("#kk-voiceengine label:nth-of-type(2)")
    speak(page)
    timings = [speak(page) for _ in range(times)]
    page.close()
    return timings


def cold(browser, url: str, times: int) -> list[dict]:
    timings = []
    for _ in range(times):
        page = open_page(browser, url)
        timings.append(speak(page))
        page.close()
    return timings


def fallback(browser, url: str, times: int) -> list[dict]:
    page = open_page(browser, url, without_socket=True)
    speak(page)
    timings = [speak(page) for _ in range(times)]
    page.close()
    return timings


def new_clip(browser, url: str, times: int) -> list[dict]:
    """Drop a 5 s clip, click the moment the page accepts it.

    "profile" = drop to card; the rest counts from the click.
    """
    clips, timings = sorted(CLIP.glob("*.wav")), []
    for n in range(times):
        page = open_page(browser, url)
        page.evaluate("KK.setMode('zero_shot')")
        began = time.perf_counter()
        page.set_input_files(
            "#kk-ref input[type=file]",
            files=[
                {
                    "name": "clip.wav",
                    "mimeType": "audio/wav",
                    "buffer": shifted(clips[n % len(clips)], n),
                }
            ],
        )
        page.wait_for_function("String(KK.voiceId() || '').startsWith('draft-')", timeout=20000)
        card = (time.perf_counter() - began) * 1000
        page.check("#kk-consent input")
        timings.append({**speak(page), "profile": card})
        page.close()
    return timings


def shifted(path: Path, n: int) -> bytes:
    """The clip cut by n samples, so that no profile of an earlier run fits."""
    data = path.read_bytes()
    return (
        data[:40] + (len(data) - 44 - 2 * (n + 1)).to_bytes(4, "little") + data[44 + 2 * (n + 1) :]
    )


GRADIO = """
import sys
import numpy as np, soundfile as sf, gradio as gr
sys.path.insert(0, {root!r})
from webui import text
from webui.engine.espeak import EspeakEngine
from webui.types import SpeechRequest
engine = EspeakEngine(2); engine.start()
samples, rate = sf.read({clip!r}, dtype="float32")
prompt = engine.encode(samples, rate, "", "zh")
def speak(words):
    request = SpeechRequest("r", words, "v", seed=1, segments=tuple(text.prepare(words)))
    for chunk in engine.stream(request, prompt):
        yield engine.describe().sample_rate, (chunk.samples * 32767).astype(np.int16)
with gr.Blocks(analytics_enabled=False) as demo:
    words = gr.Textbox({text!r})
    go = gr.Button("go", elem_id="go")
    out = gr.Audio(streaming=True, autoplay=True, elem_id="out")
    go.click(speak, words, out)
demo.launch(server_port={port}, quiet=True, ssr_mode=False)
"""


def gradio(browser, times: int) -> list[dict]:
    port, clip = 7800 + os.getpid() % 90, sorted(CLIP.glob("*.wav"))[0]
    code = GRADIO.format(root=str(ROOT), clip=str(clip), text=TEXT, port=port)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GRADIO_ANALYTICS_ENABLED": "False"},
    )
    timings = []
    try:
        for n in range(times + 1):
            page = browser.new_page()
            for _ in range(100):
                with contextlib.suppress(Exception):
                    page.goto(f"http://127.0.0.1:{port}/")
                    break
                time.sleep(0.3)
            page.wait_for_selector("#go")
            page.wait_for_timeout(1000)
            page.evaluate(
                """addEventListener('click', e => {
                const t0 = performance.now();
                const look = () => {
                  const a = document.querySelector('#out audio');
                  if (a && a.currentTime > 0 && !a.paused) window.firstMs = performance.now() - t0;
                  else requestAnimationFrame(look);
                };
                look(); }, true)"""
            )
            page.click("#go")
            page.wait_for_function("window.firstMs > 0", timeout=20000)
            ms = page.evaluate("window.firstMs")
            if n:
                timings.append({"rendered": ms, "speech": ms, "heard": ms})
            page.close()
    finally:
        process.terminate()
        process.wait(20)
    return timings


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--times", type=int, default=10, help="repetitions of each row")
    p.add_argument("--json", metavar="FILE")
    args = p.parse_args()
    from playwright.sync_api import sync_playwright

    rows: dict[str, list[dict]] = {}
    with sync_playwright() as play:
        browser = play.chromium.launch(
            args=FLAGS, **({"executable_path": chromium()} if chromium() else {})
        )
        with studio() as url:
            rows["warm page"] = warm(browser, url, args.times)
            rows["cold page"] = cold(browser, url, args.times)
            rows["fallback (fetch)"] = fallback(browser, url, args.times)
            rows["new 5 s clip"] = new_clip(browser, url, max(3, args.times // 2))
        with studio(natural=True) as url:
            if httpx.get(url + "/tts/health").json()["natural"] in ("ready", "slow"):
                rows["natural, warm page"] = natural(browser, url, args.times)
            else:
                print("natural voice: left out, it is not installed")
        if shutil.which("ffmpeg"):
            rows["gr.Audio streaming"] = gradio(browser, max(3, args.times // 2))
        else:
            print("gr.Audio streaming: left out, it needs ffmpeg")
        browser.close()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Chromium headless; milliseconds after the"
        " click, median (worst)"
    )
    print(f"{'':<20} | {'rendered':>16} | {'speech':>16} | {'heard':>16} | clip to card")
    for name, list_ in rows.items():
        cells = [
            f"{statistics.median(r[k] for r in list_):>7.1f} ({max(r[k] for r in list_):>6.1f})"
            for k in ("rendered", "speech", "heard")
        ]
        card = (
            f"{statistics.median(r['profile'] for r in list_):.0f}"
            f" ({max(r['profile'] for r in list_):.0f})"
            if "profile" in list_[0]
            else ""
        )
        print(f"{name:<20} | {' | '.join(cells)} | {card}")
    if "gr.Audio streaming" in rows:
        ratio = statistics.median(
            r["speech"] for r in rows["gr.Audio streaming"]
        ) / statistics.median(r["speech"] for r in rows["warm page"])
        print(f"gr.Audio streaming / warm page: {ratio:.1f} times")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
