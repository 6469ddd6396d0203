"""The tab Convert, with the tone engine: what is missing is said, the recording becomes a take in
another voice, and the tab goes with the ability.
"""

from __future__ import annotations

import pytest

from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser


def put(p: StudioPage, data: bytes, name: str = "清晨.wav") -> None:
    p.page.wait_for_selector(
        "#kk-src :is(input[type=file], [data-do=removeclip])", state="attached"
    )
    if not p.page.locator("#kk-src input[type=file]").count():
        p.page.locator("#kk-src [data-do=removeclip]").first.click()
    p.page.set_input_files(
        "#kk-src input[type=file]", {"name": name, "mimeType": "audio/wav", "buffer": data}
    )


def opened(p: StudioPage) -> None:
    p.page.click("[role=tab][aria-controls=kk-tab-convert]")
    p.page.wait_for_selector("#kk-src [data-do=soundsource]")


def test_a_recording_becomes_a_take_in_another_voice(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in(clip(6))
        opened(p)
        p.page.wait_for_function("KK.player.state === 'convert'")
        assert p.status() == "放入录音、选好音色，点「转换声音」。"
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        p.page.wait_for_function(
            "document.querySelector('#kk-player [role=status]').innerText.startsWith('生成的声音')"
        )
        opened(p)
        p.go()
        p.page.wait_for_function("KK.player.state === 'nosource'")
        p.page.wait_for_timeout(200)
        assert p.status() == "先放入一段要变声的录音。" and p.js(
            "!!document.activeElement.closest('#kk-src')"
        )
        put(p, clip(4))
        p.page.wait_for_selector("#kk-sourcecard .kk-strip")
        assert "4.0 秒" in p.page.inner_text("#kk-sourcecard")
        p.page.click("#kk-target [data-do=target] >> nth=0")
        assert p.page.inner_text("#kk-target [aria-checked=true] b") == "当前参考音频"
        p.go()
        p.page.wait_for_function("document.activeElement.id === 'kk-cvconsent'")
        assert "先勾选确认" in p.page.inner_text("#kk-target")
        assert p.violations() == [] and p.takes() == []
        p.page.check("#kk-cvconsent")
        p.go()
        p.until("done")
        take = p.wait_takes(1)[0]
        assert (take["mode"], take["text"], take["voice"]) == (
            "convert",
            "变声：清晨",
            p.js("KK.draft().id"),
        )
        assert take["n_samples"] / take["sample_rate"] == pytest.approx(4.0, abs=0.2)
        p.page.click(f"#kk-target [data-id='{p.js('KK.voices()[1].id')}']")
        p.page.keyboard.press("Control+Enter")
        assert p.wait_takes(2)[0]["voice"] == p.js("KK.voices()[1].id")
        p.until("done")
        p.page.click("[role=tab][aria-controls=kk-tab-speak]")
        p.page.click(".kk-take [data-do=reroll] >> nth=1")
        second_take = p.wait_takes(3)[0]
        assert (second_take["mode"], second_take["voice"]) == ("convert", take["voice"])
        p.page.click(".kk-take [data-do=restore] >> nth=1")
        p.page.wait_for_function("KK.tabNow() === 'convert'")
        assert not p.errors
        p.page.reload()
        p.page.wait_for_function(
            "document.documentElement.dataset.kk === 'ready' && KK.live.takes?.data?.length === 3"
        )
        assert not p.page.locator(".kk-take [data-do=reroll]").count(), (
            "its recording is not kept, so it cannot be made again from here"
        )


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_recording_that_does_not_work_is_a_sentence(chrome, studio, lang):
    with StudioPage(chrome, studio.url, lang, "dark", "phone") as p:
        opened(p)
        assert p.violations() == []
        for data, words in (
            (clip(33), {"zh": "33 秒", "en": "33 s"}),
            (b"not audio", {"zh": "读不懂", "en": "cannot be read"}),
            (bytes(11 << 20), {"zh": "10 MB", "en": "10 MB"}),
        ):
            put(p, data)
            p.page.wait_for_function(
                "s => document.querySelector('#kk-sourcecard .kk-warn')?.innerText.includes(s)",
                arg=words[lang],
            )
            p.go()
            assert not p.js("KK.player.busy()")
        put(p, clip(3))
        p.page.wait_for_selector("#kk-sourcecard .kk-strip")
        assert p.violations() == []
        assert p.js("document.documentElement.scrollWidth") <= 390


def test_the_tab_goes_when_the_engine_cannot(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        opened(p)
        p.js("KK.askEngine()")  # no answer is on its way that says otherwise
        p.js(
            "() => { KK.live.header.data = {...KK.engine(), modes: ['zero_shot', 'preset']};"
            " KK.draw('header'); }"
        )
        p.page.wait_for_function("KK.tabNow() === 'speak'")
        assert not p.page.locator("[role=tab][aria-controls=kk-tab-convert]").is_visible()
        p.page.wait_for_function(
            "!document.querySelector('#kk-mode"
            " input[value=instruct]').closest('label').checkVisibility()"
        )
