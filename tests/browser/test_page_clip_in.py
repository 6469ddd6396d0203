"""What is brought to the clip's zone by any way: what cannot be read is said in the page's language
and takes nothing away; of a video the sound is taken.
"""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from tests.voice_like import file_of, noisy, video_of, voice_like
from webui.audio import Clip, decode

from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
NOTICE = "#kk-health .kk-warn[role=alert] span"
DROP = """([q, name, type, data]) => {
      const bag = new DataTransfer();
      bag.items.add(new File([Uint8Array.from(atob(data), c => c.charCodeAt(0))], name, { type }));
      const to = document.querySelector(q);
      for (const kind of ["dragenter", "dragover", "drop"])
        to.dispatchEvent(
          new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: bag })
        );
    }"""
WITH_PLAYER = "#kk-ref [data-source=clip]"


def drop(p: StudioPage, to: str, data: bytes, name: str, mime: str) -> None:
    p.js(DROP, [to, name, mime, base64.b64encode(data).decode()])


def pick(p: StudioPage, data: bytes, name: str, mime: str) -> None:
    """With the button of the upload, beside a clip that is there."""
    with p.page.expect_file_chooser() as chooser:
        p.page.click("#kk-ref [data-do=soundsource][data-v=upload]")
    chooser.value.set_files({"name": name, "mimeType": mime, "buffer": data})


def test_what_cannot_be_read_is_said_in_our_words_and_the_clip_stays(chrome, studio):
    silent = video_of("mp4", [])
    with StudioPage(chrome, studio.url, "zh") as p:
        drop(p, "#kk-ref .kk-recorder", PNG, "photo.png", "image/png")
        p.page.wait_for_selector(NOTICE)
        assert "读不懂这个文件" in p.page.inner_text(NOTICE) and not p.js("KK.draft()")
        drop(p, "#kk-ref .kk-recorder", clip(5), "voice.wav", "audio/wav")
        p.page.wait_for_function("KK.draft()")
        p.page.wait_for_selector(WITH_PLAYER, state="attached")
        p.consent()
        first = p.js("KK.draft().id")
        ways = (
            lambda *args: pick(p, *args),
            lambda *args: drop(p, "#kk-ref", *args),
            lambda *args: drop(p, "#kk-textcard", *args),
        )
        files = {
            "读不懂": (PNG, "a.wav", "audio/wav"),
            "没有听到人声": (clip(4, level=0.0), "b.wav", "audio/wav"),
            "没有声音": (silent, "c.mp4", "video/mp4"),
            "10 MB": (bytes(11 << 20), "d.wav", "audio/wav"),
        }
        for i, (words, file) in enumerate(files.items()):
            if file[1] == "d.wav":
                pick(p, *file)
            else:
                ways[i % 3](*file)
            p.page.wait_for_function(
                "([q, s]) => document.querySelector(q)?.innerText.includes(s)", arg=[NOTICE, words]
            )
            assert "原来的音频还在" in p.page.inner_text(NOTICE)
            assert p.js("KK.draft().id") == first == p.js("KK.voiceId()")
            assert p.page.locator(WITH_PLAYER).count() and p.page.is_checked("#kk-consent input")
        assert not p.page.locator(".toast-body").count(), "Gradio has nothing to say in its English"
        assert p.violations() == []
        p.js("KK.setLang('en')")
        p.page.wait_for_function(
            "q => document.querySelector(q).innerText.includes('still here')", arg=NOTICE
        )
        p.page.click("#kk-health [data-do=dismiss]")
        p.page.wait_for_selector(NOTICE, state="detached")
        assert p.js("KK.draft().id") == first
        film = video_of("matroska", [voice_like(5.0), voice_like(5.0, seed=3)], "libopus", "libvpx")
        pick(p, film, "film.mkv", "video/x-matroska")
        p.page.wait_for_function("id => KK.draft() && KK.draft().id !== id", arg=first)
        assert "several sound tracks" in p.page.inner_text("#kk-health .kk-warns")
        assert not p.page.is_checked("#kk-consent input"), "another voice, another consent"
        p.page.click("#kk-ref [data-do=removeclip]")
        p.page.wait_for_selector("#kk-health .kk-demo")
        assert not p.errors


def two_voices() -> bytes:
    """Two starters of the studio, one after the other."""
    starters = Path(__file__).parents[2] / "assets" / "voices"
    first, second = (
        decode((starters / f"starter-{name}.wav").read_bytes()) for name in ("en-low", "zh-high")
    )
    pause = np.zeros(round(0.3 * first.rate), np.float32)
    return file_of(Clip(np.concatenate([first.samples, pause, second.samples]), first.rate))


def test_the_card_says_what_it_finds_and_what_a_cure_did(chrome, studio):
    t = np.arange(5 * 24000) / 24000
    beeps = Clip(
        (0.3 * np.sin(2 * np.pi * 440 * t) * (np.sin(9 * t) > 0)).astype(np.float32), 24000
    )
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in(file_of(beeps))
        assert "没有听到人说话" in p.page.inner_text("#kk-health .kk-warns")
        assert p.page.get_attribute("#kk-health .kk-verdict", "data-tone") == "bad"
        pick(p, two_voices(), "two.wav", "audio/wav")
        p.page.wait_for_function("KK.draft()?.report.speaker_changes_s.length === 1")
        assert "所选片段里只有一个人" in p.page.inner_text("#kk-health .kk-warns")
        assert p.violations() == []
        p.page.click("#kk-health [data-do=whole]")
        p.page.wait_for_function("!KK.live.health.pending")
        assert "不止一个人在说话" in p.page.inner_text("#kk-health .kk-warn[data-tone=warn]")
        p.page.click("#kk-health [data-do=fix][data-code=speakers]")
        p.page.wait_for_function("!KK.live.health.pending && KK.draft().start_s > 3")
        assert "所选片段里只有一个人" in p.page.inner_text("#kk-health .kk-warns")

        pick(p, file_of(noisy(voice_like(5.0), 10)), "noisy.wav", "audio/wav")
        p.page.wait_for_selector("#kk-health [data-do=fix][data-code=noisy]")
        p.page.evaluate("document.querySelector('#kk-health details').open = true")
        assert p.page.inner_text("#kk-health .kk-amount span") == "降噪强度 60%"
        p.page.check("#kk-useclean")
        p.page.wait_for_function("!KK.live.health.pending && KK.draft().after")
        before, after = p.js("[KK.draft().before.snr_db, KK.draft().after.snr_db].map(Math.round)")
        assert after > before + 3
        assert f"已从 {before} 变为 {after} dB" in p.page.inner_text("#kk-health .kk-warns")
        assert f"{before} → {after}" in p.page.inner_text("#kk-health .kk-facts")
        p.page.focus("#kk-health [data-amount]")
        p.page.keyboard.press("ArrowRight")
        p.page.wait_for_function(
            "document.querySelector('#kk-health .kk-amount output').value === '65%'"
        )
        assert p.violations() == []
        assert not p.errors
