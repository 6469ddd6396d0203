"""A creator's way through the page: first visit, a clip of one's own, what can be wrong with it,
takes, voices. Real studio, tone engine.
"""

from __future__ import annotations

import io
import re
import wave

import numpy as np
import pytest

from tests.unit.test_audio_music import with_music
from tests.voice_like import voice_like
from webui.studio import wav

from .studio_page import StudioPage, browser, clip

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chrome():
    with browser("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream") as b:
        yield b


def test_first_click_of_a_first_visit_speaks_and_the_take_is_the_sound(chrome, studio):
    with StudioPage(chrome, studio.url, "zh", is_first=True) as p:
        assert len(p.page.input_value("#kk-text textarea")) > 10
        assert p.js("KK.voiceNow().voice.starter")
        p.go()
        p.until("done")
        # the list of a page that opened late may bring it before the player has told what it
        # measured
        p.wait_takes(1)
        p.page.wait_for_function(
            "() => Math.abs(KK.live.takes.data[0].first_sound_ms - KK.player.meter.first) <= 1"
        )
        take = p.takes()[0]
        response = p.context.request.get(f"{studio.url}/tts/result/{take['id']}.wav").body()
        with wave.open(io.BytesIO(response)) as w:
            assert (w.getframerate(), w.getnframes()) == (take["sample_rate"], take["n_samples"])
        assert p.js("Math.round(KK.player.peaks.length / 100)") == round(
            take["n_samples"] / take["sample_rate"]
        )
        with p.page.expect_download() as down:
            p.page.click(".kk-take a[download]")
        assert down.value.path().read_bytes() == response
        assert p.js("KK.player.meter.first") > 0 and take["first_sound_ms"] == pytest.approx(
            p.js("KK.player.meter.first"), abs=1
        )
        assert max(take["peaks"]) > 0.3 and len(take["peaks"]) == 160
        assert p.js("KK.live.takes.root.querySelectorAll('.kk-mini svg.kk-on rect').length") == 160
        assert not p.errors


def test_clip_consent_save_and_saved_voice(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.clip_in()
        assert p.js("KK.draft().report.peaks.length") > 100 and not p.page.is_checked(
            "#kk-consent input"
        )
        p.go()
        p.page.wait_for_function(
            "document.activeElement === document.querySelector('#kk-consent input')"
        )
        assert p.page.inner_text("#kk-need") == "先勾选同意，才能保存或合成。"
        p.js("() => { KK.live.need.data = null; KK.draw('need'); }")
        p.page.fill("#kk-savename textarea, #kk-savename input", "林晚 · 旁白")
        p.page.click("#kk-save")
        p.page.wait_for_function(
            "document.querySelector('#kk-need').innerText.includes('先勾选同意')"
        )
        assert p.js("KK.voices().every(v => v.starter)")
        p.consent()
        p.page.wait_for_function("!document.querySelector('#kk-need').innerText.trim()")
        p.page.click("#kk-save")
        p.page.wait_for_function("KK.voices().some(v => v.name === '林晚 · 旁白')")
        p.page.wait_for_function(
            "KK.source() === 'saved' && KK.voiceNow().voice.name === '林晚 · 旁白'"
        )
        assert p.page.inner_text("#kk-need") == "已保存到音色库"
        p.page.fill("#kk-text textarea", "好的。")
        p.go()
        p.until("done")
        assert p.wait_takes(1)[0]["voice_name"] == "林晚 · 旁白"
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        p.page.click("[data-do=editvoice]")
        p.page.fill("#kk-rename", "晚晚")
        p.page.keyboard.press("Enter")
        p.page.wait_for_function("KK.voices().some(v => v.name === '晚晚')")
        p.page.click("[data-do=askvoice]")
        assert "删除「晚晚」" in p.page.inner_text(".kk-ask")
        p.page.click("[data-do=dropvoice]")
        p.page.wait_for_function("KK.voices().every(v => v.starter)")
        assert not p.errors


BAD_CLIPS = {
    "empty": (b"", "clip.wav", "读不懂|没有内容|空", "cannot be read|empty"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(200), "voice.wav", "读不懂", "cannot be read"),
    "short": (clip(0.2), "clip.wav", "至少需要|太短", "at least|too short"),
    "silence": (clip(4, level=0.0), "clip.wav", "没有听到人声", "No voice"),
    "too big": (bytes(11 << 20), "clip.wav", "超过 10 MB", "over 10 MB"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(200), "photo.png", "读不懂", "cannot be read"),
}


def test_a_bad_clip_is_a_sentence_in_the_language_of_the_page(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        for case, (data, name, zh, en) in BAD_CLIPS.items():
            p.upload(data, name, "image/png" if name.endswith("png") else "audio/wav")
            p.page.wait_for_selector("#kk-health .kk-warn[data-tone=bad]")
            assert re.search(zh, p.page.inner_text("#kk-health .kk-warn span")), case
            p.js("KK.setLang('en')")
            p.page.wait_for_function(
                "document.querySelector('#kk-health .kk-warn button').innerText === 'Other clip'"
            )
            assert re.search(en, p.page.inner_text("#kk-health .kk-warn span")), case
            assert p.js("KK.voiceId()") is None
            p.js("KK.setLang('zh')")
            clear = p.page.locator("#kk-ref [data-do=removeclip]")
            if clear.count():
                clear.first.click()
            else:
                p.js("KK.clear('#kk-ref')")
            p.page.wait_for_selector("#kk-health .kk-demo")
        p.upload(*BAD_CLIPS["png"][:2])
        p.page.wait_for_selector("#kk-health .kk-warn[data-tone=bad]")
        p.go()
        p.page.wait_for_function("KK.player.state === 'novoice'")
        p.page.wait_for_function("document.activeElement.closest('#kk-ref')")
        p.page.click("#kk-source input[value=saved]", force=True)
        p.page.fill("#kk-text textarea", "好的。")
        p.go()  # the library is untouched by a bad clip
        p.until("done")
        assert not p.errors


def test_warnings_are_cured_and_undone(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        p.clip_in(clip(6, noise=0.02, cut=True))
        before = p.js("KK.draft()")
        codes = {w["code"] for w in before["report"]["warnings"]}
        assert {"noisy", "cut_end"} <= codes
        p.page.click("[data-do=fix][data-code=cut_end]")
        p.page.wait_for_function("id => KK.draft().id !== id", arg=before["id"])
        assert p.js("KK.draft().end_s") < before["end_s"]
        row = p.page.locator(".kk-warn", has_text="last word is cut off")
        assert (
            row.get_attribute("data-tone") == "ok" and row.locator("button").inner_text() == "Undo"
        )
        row.locator("button").click()
        p.page.wait_for_function(
            "s => KK.draft().end_s === s && !KK.live.health.pending", arg=before["end_s"]
        )
        p.page.click("[data-do=fix][data-code=noisy]")
        p.page.wait_for_function(
            "KK.listen.playing &&"
            " document.querySelector('[data-do=ab][data-v=b]').getAttribute('aria-checked') ==="
            " 'true'"
        )
        assert p.js("KK.draft().clean") == 0, "listening decides nothing"
        p.page.click("[data-do=ab][data-v=a]")
        p.page.wait_for_function(
            "document.querySelector('[data-do=ab][data-v=a]').getAttribute('aria-checked') ==="
            " 'true' && KK.listen.playing"
        )
        before = p.js("KK.draft().id")
        p.page.check("#kk-useclean")
        p.page.wait_for_function(
            "id => KK.draft().id !== id && KK.draft().clean > 0 && !KK.live.health.pending",
            arg=before,
        )
        row = p.page.locator(".kk-warn", has_text="background noise")
        assert row.get_attribute("data-tone") == "ok"
        row.locator("button").click()
        p.page.wait_for_function("KK.draft().clean === 0 && !KK.live.health.pending")
        assert not p.page.is_checked("#kk-useclean") and row.get_attribute("data-tone") != "ok"
        assert not p.errors


def test_music_behind_the_voice_is_said_and_cleaning_is_heard(chrome, studio):
    with StudioPage(chrome, studio.url, "en") as p:
        p.clip_in(wav(with_music(voice_like(6.0), "held", 6)))
        row = p.page.locator(".kk-warn", has_text="There is music behind the voice.")
        row.locator("button", has_text="Try denoise").click()
        p.page.wait_for_function(
            "KK.listen.playing &&"
            " document.querySelector('[data-do=ab][data-v=b]').getAttribute('aria-checked') ==="
            " 'true'"
        )
        assert p.js("KK.draft().clean") == 0, "listening decides nothing"
        p.page.check("#kk-useclean")
        p.page.wait_for_function("KK.draft().clean > 0 && !KK.live.health.pending")
        assert (
            row.get_attribute("data-tone") == "ok" and row.locator("button").inner_text() == "Undo"
        )
        row.locator("button").click()
        p.page.wait_for_function("KK.draft().clean === 0 && !KK.live.health.pending")
        assert row.get_attribute("data-tone") == "warn" and not p.errors


def test_recording_makes_a_clip(chrome, studio):
    """The fake microphone beeps once a second: what matters is that what the browser uploads can be
    decoded.
    """
    with StudioPage(chrome, studio.url, "zh") as p:
        p.js(
            """() => {
              const add = FormData.prototype.append;
              FormData.prototype.append = function (k, v, ...n) {
                if (v instanceof Blob)
                  v.slice(0, 12)
                    .text()
                    .then(s => {
                      window.sent = [s, v.type, v.size];
                    });
                return add.call(this, k, v, ...n);
              };
            }"""
        )
        p.page.click("#kk-ref [data-do=soundsource][data-v=mic]")
        p.page.click("#kk-ref [data-do=recordclip]")
        p.page.wait_for_timeout(1500)
        p.page.wait_for_function("document.querySelector('#kk-ref').innerText.includes('照着读')")
        p.page.click("#kk-ref [data-do=endclip]")
        p.page.wait_for_function("KK.live.health.data && !KK.live.health.busy")
        answer = p.js("KK.live.health.data")
        assert "report" in answer or answer["error"]["code"] in ("silent", "too_short"), answer
        p.page.wait_for_function("window.sent")
        head, mime, _ = p.js("sent")
        assert head.startswith("RIFF") and head.endswith("WAVE") and mime == "audio/wav"


def test_a_take_comes_alone_and_a_press_brings_nothing_but_itself(chrome, studio):
    """However many takes there are: what Python sends is counted as it is read."""
    with StudioPage(chrome, studio.url, "zh") as p:
        p.page.fill("#kk-text textarea", "好的。")
        for n in range(3):
            p.go()
            p.wait_takes(n + 1)
            p.until("done")
        p.js(
            "() => { const read = JSON.parse; window.sent = []; JSON.parse = (...given) => {"
            " const told = read(...given); if (told?.ids) sent.push(told.takes.length);"
            " return told; }; }"
        )
        p.go()
        newest, *others = p.wait_takes(4)
        p.page.wait_for_function("() => KK.live.takes.data[0].first_sound_ms != null")
        assert p.js("sent") == [1] and len({newest["id"], *(k["id"] for k in others)}) == 4
        requests = []
        p.page.on("request", lambda r: requests.append((r.method, r.url.partition("/takes/")[2])))
        # without waiting for one before the next
        p.js(
            "id => ['star', 'star', 'star', 'droptake'].forEach(what =>"
            " document.querySelector(`[data-do=${what}][data-id=${id}]`).click())",
            others[0]["id"],
        )
        p.wait_takes(3)
        p.page.click("#kk-toast button")
        p.wait_takes(4)
        path = others[0]["id"]
        assert requests == [
            *[("PATCH", path)] * 3,
            ("DELETE", path),
            ("POST", path + "/restore"),
        ]
        assert p.js("sent") == [1], "no list was sent again"
        assert [k["id"] for k in p.takes()] == [newest["id"], *(k["id"] for k in others)]
        p.page.reload()
        p.page.wait_for_function(
            "document.documentElement.dataset.kk === 'ready' && KK.live.takes?.data?.length === 4"
        )
        assert [k["starred"] for k in p.takes()] == [False, True, False, False]


def test_takes_star_delete_undo_restore_reroll(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.page.fill("#kk-text textarea", "第一条记录。")
        p.instruct("seconds=1")
        p.go()
        first = p.wait_takes(1)[0]
        p.until("done")
        assert p.js("KK.chosen('kk-mode')") == "instruct"
        p.page.click(".kk-take [data-do=reroll]")
        second = p.wait_takes(2)[0]
        p.until("done")
        assert (second["text"], second["instruction"]) == (first["text"], "seconds=1") and second[
            "seed"
        ] != first["seed"]
        p.page.click(".kk-take [data-do=star] >> nth=0")
        p.page.wait_for_function("KK.live.takes.data[0].starred")
        p.page.click(".kk-take [data-do=droptake] >> nth=0")
        p.wait_takes(1)
        p.page.click("#kk-toast button")
        p.wait_takes(2)
        p.page.fill("#kk-text textarea", "别的话。")
        p.js("KK.setMode('zero_shot')")
        p.page.click(".kk-take [data-do=restore] >> nth=1")
        p.page.wait_for_function(
            "KK.field('kk-text').value === '第一条记录。' && KK.mode() === 'instruct'"
        )
        p.page.click(".kk-adv > button")
        p.page.wait_for_selector("#kk-seed input, #kk-seed textarea")
        p.page.wait_for_function(
            "seed => KK.field('kk-seed').value === seed && document.querySelector('#kk-random"
            " input').checked === false",
            arg=first["seed"],
        )
        assert p.page.input_value("#kk-seed input, #kk-seed textarea") == first[
            "seed"
        ] and not p.page.is_checked("#kk-random input")
        p.go()
        same = p.wait_takes(3)[0]
        assert same["seed"] == first["seed"]
        sound = [
            p.context.request.get(f"{studio.url}/tts/result/{t['id']}.wav").body()
            for t in (first, same)
        ]
        assert np.array_equal(*[np.frombuffer(s[-40000:], "<i2") for s in sound])
        p.page.reload()
        p.page.wait_for_function(
            "document.documentElement.dataset.kk === 'ready' && KK.live.takes?.data?.length === 3"
        )
        p.page.wait_for_function("KK.field('kk-text').value === '第一条记录。'")
        assert not p.errors


def test_a_failure_stays_in_the_list_and_can_be_tried_again(chrome, studio):
    """One of which nothing was made is known to this page only."""
    with StudioPage(chrome, studio.url, "zh") as p:
        p.instruct("fail=0")
        p.go()
        p.until("failed")
        p.page.wait_for_selector(".kk-take[data-tone=bad]")
        assert p.page.inner_text(".kk-take[data-tone=bad] [data-do=reroll]") == "重试"
        p.page.click(".kk-take[data-tone=bad] [data-do=reroll]")
        p.until("failed")
        p.page.wait_for_selector(".kk-take[data-tone=bad]")
        assert p.js("document.querySelectorAll('.kk-take[data-tone=bad]').length") == 1


def test_text_that_cannot_be_spoken_is_explained(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        for text in ("", "？！……", "😀😀", "字" * 5000):
            p.page.fill("#kk-text textarea", text)
            p.js("KK.unnotice()")  # what was said of the text before
            p.go()
            p.page.wait_for_function(
                "s => KK.player.state === s", arg="failed" if len(text) > 4096 else "notext"
            )
            p.page.wait_for_function("document.activeElement === KK.field('kk-text')")
            p.page.wait_for_timeout(
                200
            )  # the sound context wakes up at the first press; the words must outlive that
            assert p.status() == (
                "没有成功：一次最多 4096 字。请拆成几次合成。"
                if len(text) > 4096
                else "先写点要说的话。"
            )
        assert p.page.inner_text(".kk-count") == "超出 904 字，请拆成几次合成。"
        assert p.takes() == []
