"""CosyVoice2 through the page, with small random weights: it takes over while the page is open, and
every mode makes a finished take.
"""

from __future__ import annotations

import pytest

from scripts.make_small_model import make
from tests.serve import running

from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make(root / "CosyVoice2-0.5B")
    return root


def test_every_mode_makes_a_take_after_the_takeover(chrome, models):
    with (
        running("--model-dir", str(models), engine="auto") as studio,
        StudioPage(chrome, studio.url, "zh") as p,
    ):
        p.record_toasts()
        p.js(
            "KK.askEngine()"
        )  # the page has heard who speaks: a change from now on is one that it tells
        early, is_offered = p.js(
            "[KK.engine().engine === 'builtin',"
            " document.querySelector('[role=tab][aria-controls=kk-tab-convert]').checkVisibility()]"
        )
        if early:  # on a quick machine it has taken over before the page was up
            assert not is_offered
        p.page.fill("#kk-text textarea", "好。")
        p.page.wait_for_function("KK.engine().engine === 'cosyvoice2'", timeout=120000)
        if early:
            assert p.js("said").count("CosyVoice2 已就绪，之后的合成都用它") == 1
        p.page.wait_for_function(
            "document.querySelector('.kk-eng').innerText.includes('CosyVoice2 就绪')"
        )
        p.page.wait_for_selector("[data-do=token][data-v='[laughter]']")
        assert p.page.locator("[role=tab][aria-controls=kk-tab-convert]").is_visible()

        p.clip_in(clip(4))
        p.page.fill("#kk-transcript textarea", "你好。")  # not more than twice the text
        p.consent()
        modes = [p.speak(1, "cosyvoice2")["mode"]]
        p.js("KK.setMode('cross_lingual')")
        p.page.wait_for_function("KK.mode() === 'cross_lingual'")
        p.page.fill("#kk-text textarea", "Hi.")
        modes.append(p.speak(2, "cosyvoice2")["mode"])
        p.page.fill("#kk-text textarea", "好。")
        p.page.click("#kk-style [data-v=sichuan]")
        take = p.speak(3, "cosyvoice2")
        modes.append(take["mode"])
        assert "四川话" in take["instruction"]
        p.js("KK.setMode('preset')")
        p.page.wait_for_function(
            "KK.voices().some(v => !v.sample) && document.querySelector('#kk-picker .kk-pickrow"
            " [data-do=use]')?.dataset.id.startsWith('preset-')"
        )
        first = p.page.locator("#kk-picker .kk-pickrow").first
        assert (
            first.locator("[data-do=use]").get_attribute("data-id").startswith("preset-")
            and "随模型提供" in first.inner_text()
        )
        assert not first.locator("[data-do=playvoice]").count(), (
            "a voice of the model has no recording to play"
        )
        assert p.violations() == []
        first.locator("[data-do=use]").click()
        take = p.speak(4, "cosyvoice2")
        modes.append(take["mode"])
        assert take["voice"].startswith("preset-")
        p.page.click("[role=tab][aria-controls=kk-tab-convert]")
        p.page.wait_for_selector("#kk-src input[type=file]", state="attached")
        p.page.set_input_files(
            "#kk-src input[type=file]",
            {"name": "said.wav", "mimeType": "audio/wav", "buffer": clip(2)},
        )
        p.page.wait_for_selector("#kk-sourcecard .kk-strip")
        p.page.click("#kk-target [data-id^=preset-]")
        p.page.check("#kk-cvconsent")
        modes.append(p.speak(5, "cosyvoice2")["mode"])
        assert modes == ["zero_shot", "cross_lingual", "instruct", "preset", "convert"]
        assert p.violations() == [] and not p.errors
