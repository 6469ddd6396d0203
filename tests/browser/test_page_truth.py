"""What the page says of its engine and models is so: a process that dies, comes back, or does not;
models that are there already.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.serve import running

from .harness import PATIENT
from .studio_page import StudioPage

pytestmark = pytest.mark.browser
NAME = "CosyVoice2-0.5B"


def open_gate(gate) -> None:
    """Lets one start of the engine through."""
    with open(gate, "w") as pipe:
        pipe.write("x")


def shows(p: StudioPage, key: str, tone: str, **values) -> None:
    """Nobody asks the page to look: its next look by itself may be half a minute away, and this
    waits no longer than that.
    """
    p.page.wait_for_function(
        """([key, tone, values]) => { const pill = document.querySelector(".kk-eng");
        return pill.dataset.tone === tone && pill.innerText.includes(KK.t(key, values)); }""",
        arg=[key, tone, values],
        timeout=20000,
    )


def test_the_pill_says_at_once_that_the_engine_died_what_follows_and_that_it_is_back(
    chrome, tmp_path
):
    os.mkfifo(gate := tmp_path / "gate")
    with (
        running(hosted_gate=gate) as studio,
        StudioPage(chrome, studio.url, "zh", init=PATIENT) as p,
    ):
        p.page.wait_for_function("KK.engine().coming")
        open_gate(gate)
        p.page.wait_for_function("!KK.engine().coming && KK.engine().state === 'ready'")
        p.record_toasts()
        p.page.evaluate("KK.askEngine()")  # from here on it looks again after half a minute only
        os.kill(studio.state()["engine_pid"], signal.SIGKILL)
        shows(p, "eng.restarting", "warn", e="fake")
        p.page.click(".kk-eng")
        for lang, text in (("en", "fake is restarting"), ("zh", "fake 正在重启")):
            p.js("l => KK.setLang(l)", lang)
            panel = p.page.inner_text("#kk-engpop")
            assert text in panel and p.js("KK.t('eng.d.restarting')") in panel
        assert p.violations() == []
        p.page.keyboard.press("Escape")
        open_gate(gate)
        shows(p, "eng.full", "ok", e="fake")
        assert p.js("said") == [
            p.js(f"KK.t('eng.now.{key}', {{e: 'fake'}})") for key in ("restarting", "back")
        ]
        # ---- a second time is once too often: the engine before it takes over, and the page says w
        os.kill(studio.state()["engine_pid"], signal.SIGKILL)
        p.page.wait_for_function("KK.engine().failure && KK.engine().state === 'ready'")
        p.page.click(".kk-eng")
        assert p.page.locator("#kk-engpop [data-do=engineagain]").is_visible()
        assert p.js("KK.engine().failure_zh") in p.page.inner_text("#kk-engpop")
        # ---- the studio itself goes away ---------------------------------------------------------
        studio.process.send_signal(signal.SIGKILL)
        shows(p, "eng.offline", "bad")
        assert p.violations() == [] and not p.errors


def copy_model(folder, record: dict) -> None:
    """What passes for a whole model of the second generation; `record`: how its files came."""
    folder.mkdir(parents=True)
    for name in ("cosyvoice2.yaml", "llm.pt", "flow.pt", "hift.pt"):
        (folder / name).write_text("x")
    (folder / ".fetched.json").write_text(json.dumps(record))


def test_a_model_that_was_copied_in_is_offered_when_somebody_looks_and_its_odd_file_is_named(
    chrome, tmp_path
):
    root = tmp_path / "models"
    root.mkdir()
    with (
        running("--model-dir", str(root), engine="auto") as studio,
        StudioPage(chrome, studio.url, "zh") as p,
    ):
        p.page.wait_for_selector("#kk-engpop [data-do=modelfetch]", state="attached")
        copy_model(root / NAME, {"llm.pt": {"size": 1, "sha256": "0" * 64}})
        p.page.click(".kk-eng")
        p.page.wait_for_selector(f"#kk-engpop [data-do=modeluse][data-v='{NAME}']")
        for lang, present, absent in (
            ("zh", f"{NAME} 已安装，未使用", "未下载"),
            ("en", f"{NAME} installed, not in use", "not downloaded"),
        ):
            p.js("l => KK.setLang(l)", lang)
            panel = p.page.inner_text("#kk-engpop")
            assert present in panel and absent not in panel and "GB" not in panel
        assert p.page.locator("#kk-engpop [data-do=modeluse]").count() == 1, "offered once"
        assert p.violations() == []
        p.page.keyboard.press("Escape")
        (root / "other").mkdir()
        for file in (root / NAME).iterdir():
            (root / "other" / file.name).write_text("x")
        p.page.click("[role=tab][aria-controls=kk-tab-settings]")
        other = p.page.locator("#kk-models .kk-model").filter(has_text="other")
        other.locator("[data-do=modeluse]").wait_for()
        row = p.page.locator("#kk-models .kk-model").filter(has_text=NAME).inner_text()
        assert "Installed, not in use" in row and "GB" not in row
        assert "The checksum of llm.pt differs" in row
        assert "checksum" not in other.inner_text() and p.violations() == []
        p.page.click(f"#kk-models [data-do=modeluse][data-v='{NAME}']")
        p.page.wait_for_function(
            "n => [KK.engine().next, KK.engine().failed].includes(n)", arg=NAME
        )
        assert not p.errors
