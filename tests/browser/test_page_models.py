"""Several models on one disk, with small random weights: each generation through the page in every
mode that it offers, and the change from one to another while a stream plays.
"""

from __future__ import annotations

import io
import wave

import httpx
import numpy as np
import pytest

from scripts.make_small_model import make
from tests.serve import running

from .harness import PATIENT
from .studio_page import StudioPage, clip

pytestmark = pytest.mark.browser
SAID = "你好。"  # not more than twice what is spoken
LONG = "第一句话说完了。第二句话也说完了。第三句话还没有说完。第四句话正在说。第五句话是最后一句。"
# 5 s are made ahead, not 15
PHONE = (
    "const all = matchMedia; window.matchMedia = q => q === '(pointer: coarse)' ? { matches: true }"
    " : all.call(window, q);"
)
CHIPS = {"cosyvoice1": "happy", "cosyvoice3": "robot"}
NAMES = {
    "cosyvoice1": "CosyVoice-300M-Instruct",
    "cosyvoice2": "CosyVoice2-0.5B",
    "cosyvoice3": "my renamed model",
}
OTHER = "CosyVoice2-other"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One of each generation, and a second one of the second."""
    root = tmp_path_factory.mktemp("models")
    for engine, name in NAMES.items():
        make(root / name, family=engine)
    make(root / OTHER, seed=9)
    return root


def change(p: StudioPage, name: str, engine: str) -> None:
    """From the list in the settings."""
    p.page.click("[role=tab][aria-controls=kk-tab-settings]")
    p.page.click(f"#kk-models [data-do=modeluse][data-v='{name}']")
    speaks(p, name, engine)
    p.page.click("[role=tab][aria-controls=kk-tab-speak]")


def speaks(p: StudioPage, name: str, engine: str) -> None:
    p.page.wait_for_function(
        "([name, engine]) => KK.engine().title === name && KK.engine().engine === engine",
        arg=[name, engine],
        timeout=120000,
    )
    p.page.wait_for_function(
        "s => document.querySelector('.kk-eng').innerText.includes(s)", arg=f"{name} 就绪"
    )


def samples(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2")


def into(p: StudioPage, mode: str) -> None:
    p.js("m => KK.setMode(m)", mode)
    p.page.wait_for_function("m => KK.mode() === m", arg=mode)
    assert p.page.locator(f"#kk-mode label:has(input[value={mode}])").is_visible()


def in_every_mode(p: StudioPage, engine: str, n: int) -> list[dict]:
    """A take in each mode of the engine; n: takes that are there."""
    modes, takes = p.js("KK.engine().modes"), []
    for mode in (m for m in modes if m != "convert"):
        into(p, mode)
        if mode == "preset":
            row = p.page.locator("#kk-picker .kk-pickrow [data-do=use]").first
            row.click()
        p.page.fill("#kk-text textarea", "Hi." if mode == "cross_lingual" else "好。")
        if mode == "instruct":
            p.page.click(f"#kk-style [data-v={CHIPS[engine]}]")
        takes.append(p.speak(n := n + 1, engine))
    if "convert" in modes:
        p.page.click("[role=tab][aria-controls=kk-tab-convert]")
        if not p.page.locator("#kk-sourcecard .kk-strip").count():
            p.page.wait_for_selector("#kk-src input[type=file]", state="attached")
            p.page.set_input_files(
                "#kk-src input[type=file]",
                {"name": "said.wav", "mimeType": "audio/wav", "buffer": clip(2)},
            )
            p.page.wait_for_selector("#kk-sourcecard .kk-strip")
            p.page.check("#kk-cvconsent")
        p.page.click("#kk-target [data-id^=starter-]")
        takes.append(p.speak(n + 1, engine))
        p.page.click("[role=tab][aria-controls=kk-tab-speak]")
    assert [take["mode"] for take in takes] == modes
    return takes


def test_each_generation_speaks_in_every_mode_and_a_stream_ends_with_the_one_it_began_with(
    chrome, models, tmp_path
):
    data_dir = tmp_path / "data"
    with (
        running(
            "--model-dir",
            str(models),
            "--model",
            NAMES["cosyvoice2"],
            engine="auto",
            data_dir=data_dir,
        ) as studio,
        StudioPage(chrome, studio.url, "zh", init=PHONE + PATIENT) as p,
    ):
        speaks(p, NAMES["cosyvoice2"], "cosyvoice2")
        assert p.js("KK.player.via") == "ws", "what a plain request hears no pause holds back"
        # ---- a long stream, and another model is chosen while it sounds --------------------------
        voice = p.js("KK.voices().find(v => v.starter && v.sample).id")
        params = {"input": LONG, "voice": voice, "mode": "cross_lingual", "seed": 5}
        with httpx.Client(base_url=studio.url, timeout=60) as http:
            alone = samples(
                http.post(
                    "/v1/audio/speech",
                    json={**params, "response_format": "wav", "model": NAMES["cosyvoice2"]},
                ).content
            )
            assert {m["id"]: m["active"] for m in http.get("/v1/models").json()["data"]} == {
                "auto": True,
                "cosyvoice2": True,
                NAMES["cosyvoice2"]: True,
                NAMES["cosyvoice1"]: False,
                NAMES["cosyvoice3"]: False,
                OTHER: False,
            }
            refused = http.post("/v1/audio/speech", json={**params, "model": NAMES["cosyvoice1"]})
            assert refused.status_code == 422 and refused.json()["error"]["code"] == "model_idle"
        p.page.mouse.click(700, 8)  # a gesture, so that sound may begin
        p.js("asked => KK.regenerate(asked)", params)
        p.until("playing")
        p.js(
            "KK.player.pause(true)"
        )  # so that it lasts, however long this machine takes to load another
        p.page.click(".kk-eng")
        p.page.click(f"#kk-engpop [data-do=modeluse][data-v='{NAMES['cosyvoice1']}']")
        p.page.keyboard.press("Escape")
        speaks(p, NAMES["cosyvoice1"], "cosyvoice1")
        assert studio.state()["open"] == 1 and not p.takes(), (
            f"it is not over: {p.js('KK.player.state')}, of {len(alone) / 24000:.1f} s"
            f" {p.js('KK.player.kept()')} s came"
        )
        p.js("KK.player.pause(false)")
        p.page.wait_for_function(
            "() => { KK.player.seek(1e6); return KK.live.takes.data.length === 1; }",
            polling=400,
            timeout=150000,
        )  # as one who skips on
        take = p.takes()[0]
        assert (take["state"], take["engine"]) == ("done", "cosyvoice2")
        with httpx.Client(
            base_url=studio.url,
            timeout=60,
            cookies={c["name"]: c["value"] for c in p.context.cookies()},
        ) as http:
            take_samples = samples(http.get(f"/tts/result/{take['id']}.wav").content)
        assert np.array_equal(take_samples, alone), (
            "to its last sample as if nobody had changed anything"
        )
        # ---- the next is the new one's; its clip is encoded for it, in every mode ----------------
        p.clip_in(clip(4))
        p.page.fill("#kk-transcript textarea", SAID)
        p.consent()
        takes = in_every_mode(p, "cosyvoice1", 1)
        assert {t["sample_rate"] for t in takes} == {22050}
        voice_by_mode = {t["mode"]: t["voice"] for t in takes}
        assert voice_by_mode["preset"].startswith("preset-")
        into(p, "preset")
        assert {"中文女", "日语男", "韩语女"} <= set(
            p.js("KK.voices().filter(v => !v.sample).map(v => v.name)")
        )
        into(p, "zero_shot")
        change(p, NAMES["cosyvoice3"], "cosyvoice3")
        p.page.wait_for_function(
            "KK.voices().every(v => v.sample)"
        )  # voices of another model are gone
        assert (
            p.page.locator("#kk-style [data-v=robot]").is_visible()
            and p.page.locator("#kk-style [data-v=ningxia]").is_visible()
        )
        p.page.wait_for_selector("[data-do=token][data-v='[laughter]']")
        took = in_every_mode(p, "cosyvoice3", 1 + len(takes))
        assert {t["sample_rate"] for t in took} == {24000} and "机器人" in next(
            t for t in took if t["mode"] == "instruct"
        )["instruction"]
        # ---- two of one generation are told apart, and the choice lasts --------------------------
        encoded = studio.state()["encoded"]
        change(p, OTHER, "cosyvoice2")
        with httpx.Client(base_url=studio.url, timeout=60) as http:
            assert (
                http.post(
                    "/v1/audio/speech",
                    json={**params, "input": "好。", "response_format": "wav", "model": OTHER},
                ).status_code
                == 200
            )
        assert studio.state()["encoded"] > encoded, "a voice is encoded anew for other weights"
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        assert p.violations() == [] and not p.errors
    assert (data_dir / "model").read_text().strip() == OTHER
