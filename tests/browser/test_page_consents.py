"""The library tells of each voice of one's own when its use was agreed to and by whom, as far as
that was written down; of the studio's own voices nothing.
"""

from __future__ import annotations

import json

import pytest

from tests.serve import running

from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser
TOLD = {
    "zh": ("授权：{d}，在本页确认为本人", "{n} 的授权录音", "由程序填写：{n}", "没有授权记录"),
    "en": (
        "Consent: {d}, confirmed on this page: own voice",
        "recorded by {n}",
        "stated by a program: {n}",
        "No consent is on record",
    ),
}


@pytest.fixture(scope="module")
def own():
    """With a voice of each kind, and one from before consents were kept."""
    with running() as studio:
        with studio.client() as http:
            consent_id = http.post(
                "/v1/audio/voice_consents",
                files={"recording": clip(2)},
                data={"name": "Lin <Wan>", "language": "zh"},
            ).json()["id"]
            voice_ids = {
                name: (
                    http.post(
                        "/v1/audio/voices",
                        files={"audio_sample": clip()},
                        data={"name": name, "consent": words},
                    ).json()["id"]
                )
                for name, words in (
                    ("Recorded", consent_id),
                    ("Words", "Anna, <b>by letter</b>"),
                    ("Old", "x"),
                )
            }
        record = studio.data_dir / "voices" / voice_ids["Old"] / "voice.json"
        record.write_text(
            json.dumps(
                json.loads(record.read_text("utf-8")) | {"consent": "", "created_at": 1.6e9}
            ),
            "utf-8",
        )
        data = studio.data_dir
        yield studio, data


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_when_and_by_whom_is_on_the_card(chrome, own, lang):
    studio, _ = own
    page, recording, words, _ = TOLD[lang]
    with StudioPage(chrome, studio.url, lang) as p:
        p.clip_in()
        p.consent()
        p.page.fill("#kk-savename textarea, #kk-savename input", f"Page {lang}")
        p.page.click("#kk-save")
        p.page.wait_for_function("n => KK.voices().some(v => v.name === n)", arg=f"Page {lang}")
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        p.page.wait_for_selector(".kk-agreed")

        def line(name):
            return p.page.locator(".kk-voice", has_text=name).locator(".kk-agreed").inner_text()

        today = p.js(
            "l => new Date().toLocaleDateString(l, {year: 'numeric', month: 'short', day:"
            " 'numeric'})",
            {"zh": "zh-CN", "en": "en"}[lang],
        )
        assert page.format(d=today) in line(f"Page {lang}")
        assert recording.format(n="Lin <Wan>") in line("Recorded") and today in line("Recorded")
        assert words.format(n="Anna, <b>by letter</b>") in line("Words")
        assert (
            p.page.locator(".kk-voice").count()
            > p.page.locator(".kk-agreed").count()
            == len(p.js("KK.voices().filter(v => !v.starter)"))
        )
        assert p.violations() == [] and not p.errors


def test_one_from_before_consents_were_kept_says_so(chrome, own):
    """Read from the disk, as it lies there when the studio starts again."""
    _, data = own
    with running(data_dir=data) as studio:
        for lang in TOLD:
            with StudioPage(chrome, studio.url, lang) as p:
                p.page.click("[role=tab][aria-controls=kk-tab-voices]")
                p.page.wait_for_selector(".kk-agreed")
                assert (
                    p.page.locator(".kk-voice", has_text="Old").locator(".kk-agreed").inner_text()
                    == TOLD[lang][3]
                )
