"""What is kept and for how long stands beside the takes, is the studio's own, and holds in every
browser of a login; downloads come in the chosen format.
"""

from __future__ import annotations

import io
import json
import zipfile

import av
import pytest

from tests.serve import running

from .studio_page import StudioPage
from .test_page_login import logged_in

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def locked():
    with running("--auth", "bob:secret", env={"KAIKOU_TAKES_PER_VISITOR": "3"}) as studio:
        yield studio


def speak_takes(p: StudioPage, n: int) -> None:
    p.instruct("seconds=1")
    for k in range(n):
        p.go()
        p.until("done")
        p.page.wait_for_function("n => KK.live.takes.data.length >= n && KK.player.url", arg=k + 1)


def line(p: StudioPage) -> str:
    return p.page.inner_text(".kk-storage")


def saved(p: StudioPage, selector: str) -> tuple[str, bytes]:
    with p.page.expect_download() as down:
        p.page.click(selector)
    return down.value.suggested_filename, down.value.path().read_bytes()


def test_how_long_takes_stay_is_said_chosen_and_the_same_in_every_browser(chrome, locked):
    with logged_in(chrome, locked, "zh") as p:
        speak_takes(p, 1)
        p.page.wait_for_selector(".kk-storage")
        assert line(p).startswith("1 条，48 KB · 保留到你删除为止")
        assert "最多保留 3 条" not in p.page.inner_text("#kk-takes")
        p.page.click("[data-do=keepterm]")
        p.page.wait_for_selector("#kk-set-keep input")
        p.page.wait_for_function("document.activeElement.closest('#kk-set-keep')")
        assert p.js("KK.chosen('kk-set-keep')") == "36500"
        text = p.page.inner_text("#kk-storage")
        assert "同一账号" in text and "磁盘还剩" in text and p.violations() == []
        p.page.click("#kk-set-keep label:has(input[value='7'])")
        p.page.wait_for_function("KK.storageInfo().days === 7")
        p.page.click("[role=tab][aria-controls=kk-tab-speak]")
        assert "保留 7 天，收藏的一直保留" in line(p)
        speak_takes(p, 2)
        p.page.wait_for_function("KK.live.takes.data.length === 3")
        assert "已到 3 条的上限" in p.page.inner_text(".kk-storage + .kk-inline")
        assert p.violations() == [] and not p.errors
        with logged_in(chrome, locked, "en") as q:
            assert len(q.wait_takes(3)) == 3 and "3 takes, 1" in line(q)
            assert "kept for 7 days, favourites for good" in line(q)
            assert "each new one deletes the oldest" in q.page.inner_text("#kk-takes")
            q.page.locator("[data-do=droptake]").first.click()
            q.wait_takes(2)
            assert "2 takes, " in line(q) and "after 1 more" in q.page.inner_text("#kk-takes")
            q.page.click("[role=tab][aria-controls=kk-tab-settings]")
            q.page.wait_for_function("KK.chosen('kk-set-keep') === '7'")
            assert not q.errors


def test_takes_come_down_in_the_format_that_was_chosen_once(chrome, studio):
    with StudioPage(chrome, studio.url, "zh") as p:
        speak_takes(p, 1)
        p.page.wait_for_selector("#kk-format-takes")
        name, data = saved(p, ".kk-take [data-do=savetake]")
        assert name.endswith(".wav") and data[:4] == b"RIFF"
        for kind, head in (("mp3", b"ID3"), ("flac", b"fLaC"), ("opus", b"OggS")):
            p.page.select_option("#kk-format-takes", kind)
            for selector in (".kk-take [data-do=savetake]", "#kk-player [data-do=save]"):
                name, data = saved(p, selector)
                assert name.endswith(f".{kind}") and data.startswith(head)
            with av.open(io.BytesIO(data)) as file:
                tags = {**file.metadata, **file.streams.audio[0].metadata}
                assert "AI-generated" in str(tags)
            with zipfile.ZipFile(io.BytesIO(saved(p, "[data-do=savezip]")[1])) as z:
                (row,) = json.loads(z.read("manifest.json"))
                assert row["file"].endswith(f".{kind}") and z.read(row["file"]).startswith(head)
        assert p.violations() == []
        p.page.reload()
        p.ready()
        p.page.wait_for_selector("#kk-format-takes")
        assert p.page.input_value("#kk-format-takes") == "opus"
        sentence = "没能写成 opus 格式。请再试一次，或改用 wav。"
        p.page.route(
            "**/tts/result/*.opus",
            lambda r: r.fulfill(status=500, json={"error": {"message": sentence}}),
        )
        p.page.click(".kk-take [data-do=savetake]")
        p.page.wait_for_function(
            "s => document.querySelector('#kk-toast')?.innerText.includes(s)", arg=sentence
        )
        assert not p.errors
