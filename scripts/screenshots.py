"""Pictures of the running studio for the README: python scripts/screenshots.py [--url
http://127.0.0.1:7860] [--out assets/screenshots].

Without --url a studio with the built-in voice is started on a free port with an empty data folder.
Needs the test packages and a Chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import wave
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.browser.modules import EXPORTS  # noqa: E402

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TEXT = {
    "zh": (
        "清晨的风从窗口吹进来。我把要说的话写下来，它立刻就开口了。你听，这就是我的声音。"
        "只要三秒钟，它就记住了我。"
    ),
    "en": (
        "Morning air drifts in through the window. I write down what I want to say, and it speaks"
        " at once. Listen: this is my voice. Three seconds were enough."
    ),
}
SAID = "大家好，这是一段用来测试的录音，希望你喜欢这个声音。"


@contextmanager
def started():
    """A studio of its own; yields its address."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "webui",
                "--port",
                str(port),
                "--data-dir",
                data,
                "--engine",
                "builtin",
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
        try:
            while True:
                try:
                    urllib.request.urlopen(url + "/health/ready", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    if time.monotonic() > end or process.poll() is not None:
                        raise SystemExit("The studio did not start.") from None
                    time.sleep(0.3)
            yield url
        finally:
            process.terminate()
            process.wait(15)


def recording() -> bytes:
    """A clip with something to say about it: two pieces of speech, a pause, some hiss, and a last
    word that is cut off.
    """
    pieces, rate = [], 16000
    for name in ("starter-zh-high.wav", "starter-zh-breathy.wav"):
        with wave.open(str(ROOT / "assets" / "voices" / name)) as w:
            rate = w.getframerate()
            pieces += [
                np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(float),
                np.zeros(rate // 2),
            ]
    sound = np.concatenate(pieces)[: int(12.4 * rate)]
    sound = sound + np.random.default_rng(3).normal(0, 420, len(sound))
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1), w.setsampwidth(2), w.setframerate(rate)
        w.writeframes(np.clip(sound, -32000, 32000).astype("<i2").tobytes())
    return out.getvalue()


def opened(chrome, url: str, lang: str, theme: str, width: int, height: int, scale: float = 1):
    page = chrome.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=scale,
        has_touch=width < 700,
        locale="zh-CN" if lang == "zh" else "en-US",
    ).new_page()
    page.add_init_script(EXPORTS)
    page.goto(f"{url}/?lang={lang}&theme={theme}")
    page.wait_for_function(
        "document.documentElement.dataset.kk === 'ready' && KK.live.picker?.data?.length &&"
        " KK.player.linked"
    )
    page.wait_for_function("KK.engine().natural !== 'starting'", timeout=120000)
    page.wait_for_timeout(600)
    page.fill("#kk-text textarea", TEXT[lang])
    return page


def clip_in(page) -> None:
    page.set_input_files(
        "#kk-ref input[type=file]",
        {"name": "clip.wav", "mimeType": "audio/wav", "buffer": recording()},
    )
    page.wait_for_selector(".kk-strip", state="attached")
    page.evaluate(
        "s => { KK.setField('kk-transcript', s); document.querySelector('#kk-consent"
        " input').click(); KK.draw('health'); }",
        SAID,
    )  # a phone has folded them away
    page.wait_for_timeout(2500)  # the voice is prepared meanwhile


def speak(page, until: str) -> None:
    page.evaluate("document.querySelector('#kk-player [data-do=go]').focus()")
    page.keyboard.press("Enter")
    page.wait_for_function(until, timeout=60000)


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--url", default="")
    ask.add_argument("--out", type=Path, default=ROOT / "assets" / "screenshots")
    args = ask.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    chromium = next(
        (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
    )
    if args.url:
        shoot(args.url.rstrip("/"), args.out, chromium)
    else:
        with started() as url:
            shoot(url, args.out, chromium)
    return 0


def shoot(url: str, out: Path, chromium: str | None) -> None:
    with sync_playwright() as p:
        chrome = p.chromium.launch(executable_path=chromium, args=FLAGS)

        def keep(page, name: str) -> None:
            page.evaluate("KK.hideToast(); window.scrollTo(0, 0); document.activeElement?.blur()")
            page.wait_for_timeout(250)
            page.screenshot(path=str(out / f"{name}.png"))
            page.context.close()

        page = opened(chrome, url, "zh", "light", 1440, 900)
        clip_in(page)
        keep(page, "zh-light-desktop")

        page = opened(chrome, url, "zh", "light", 1440, 900)
        clip_in(page)
        page.fill(
            "#kk-text textarea", TEXT["zh"] * 3
        )  # longer than the player's lead, so that something is still to come
        page.click("#kk-style [data-v=sichuan]")
        page.click("#kk-style [data-v=happy]")
        speak(page, "KK.player.position() > 3")
        keep(page, "streaming")

        page = opened(chrome, url, "en", "dark", 1440, 900)
        clip_in(page)
        page.click("#kk-style [data-v=happy]")
        speak(page, "KK.player.state === 'done' && KK.live.takes.data.length")
        keep(page, "en-dark-desktop")

        page = opened(chrome, url, "zh", "light", 390, 844, 2)
        clip_in(page)
        speak(page, "KK.player.position() > 3")
        keep(page, "phone-zh")
        chrome.close()


if __name__ == "__main__":
    sys.exit(main())
