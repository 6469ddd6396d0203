"""Each take as code: what the page shows is run as it stands, in a real shell and a real Python,
and gives the take again, sample for sample.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.serve import running

from .harness import ROOT, wav_samples
from .studio_page import StudioPage

pytestmark = pytest.mark.browser
NASTY = (
    'It\'s "quoted", 5 < 6 & $HOME `id` \\n \\ %s {x} #!\n你好，「世界」——第二行。 </script> 🙂'
    " \u2028 end"
)
KEY = "kk-a-secret-of-this-test"


@pytest.fixture(scope="module")
def voice_studio():
    """The built-in voice: other settings are other sound.

    A login and a key: the code has to name it.
    """
    with running(
        "--auth", "studio:secret", engine="builtin", env={"KAIKOU_API_KEY": KEY}
    ) as server:
        yield server


def shown(p: StudioPage, n: int = 0) -> dict[str, str]:
    p.page.click(f".kk-take >> nth={n} >> [data-do=code]")
    code = p.js(
        "Object.fromEntries([...document.querySelectorAll('#kk-code section')].map(s =>"
        " [s.querySelector('[data-v]').dataset.v, s.querySelector('code').textContent]))"
    )
    p.page.keyboard.press("Escape")
    return code


def run(kind: str, code: str, folder, key: str | None) -> None:
    env = (
        {k: v for k, v in os.environ.items() if k != "KAIKOU_API_KEY"}
        | ({"KAIKOU_API_KEY": key} if key else {})
        | {"PYTHONPATH": str(ROOT)}
    )
    argv = ["bash", "-c", code] if kind == "curl" else [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{kind}: {done.stderr}\n{code}"


@pytest.mark.parametrize(
    "ask",
    [
        {"input": NASTY, "voice": "starter-en-low", "seed": 7, "mode": "zero_shot", "speed": 1.0},
        {
            "input": "今天天气不错。",
            "voice": "starter-zh-high",
            "seed": 9007199254740993,
            "mode": "instruct",
            "instructions": "开心地说，别 'rm -rf'",
            "speed": 2.0,
            "language": "zh",
        },
    ],
)
def test_what_is_shown_gives_the_take_again(chrome, voice_studio, tmp_path, ask):
    with chrome.new_context() as login:
        login.request.post(
            voice_studio.url + "/login", form={"user": "studio", "password": "secret"}
        )
        with StudioPage(chrome, voice_studio.url, "en", storage_state=login.storage_state()) as p:
            body = json.dumps(ask | {"stream": False})
            job = p.js(
                "body => fetch(KK.studioUrl() + '/v1/audio/speech', {method: 'POST', headers:"
                " {'Content-Type': 'application/json'}, body}).then(r =>"
                " r.headers.get('x-job-id'))",
                body,
            )
            assert job, "it was refused"
            p.page.wait_for_function(
                "id => { KK.reloadTakes(); return KK.take(id); }", arg=job, polling=300
            )
            code = shown(p)
            wav_data = p.context.request.get(f"{voice_studio.url}/tts/result/{job}.wav").body()
    assert all(KEY not in x and "KAIKOU_API_KEY" in x for x in code.values()) and set(code) == {
        "curl",
        "openai",
        "client",
    }
    expected = wav_samples(wav_data)
    assert len(expected) > 12000
    for kind in code if shutil.which("curl") else ("openai", "client"):
        folder = tmp_path / kind
        folder.mkdir()
        run(kind, code[kind], folder, KEY)
        actual = wav_samples((folder / "take.wav").read_bytes())
        assert len(actual) == len(expected) and (actual == expected).all(), kind


def test_a_studio_without_keys_needs_none(chrome, studio, tmp_path):
    with StudioPage(chrome, studio.url, "zh") as p:
        p.page.click("#kk-source label >> nth=1")
        p.instruct("seconds=0.5")
        p.go()
        p.until("done")
        take = p.wait_takes(1)[0]
        code = shown(p)
        wav_data = p.context.request.get(f"{studio.url}/tts/result/{take['id']}.wav").body()
    for kind in code if shutil.which("curl") else ("openai", "client"):
        folder = tmp_path / kind
        folder.mkdir()
        run(kind, code[kind], folder, None)
        assert (wav_samples((folder / "take.wav").read_bytes()) == wav_samples(wav_data)).all(), (
            kind
        )


@pytest.mark.parametrize(
    ("lang", "size", "theme"), [("en", "wide", "dark"), ("zh", "phone", "light")]
)
def test_the_dialog_by_keyboard(chrome, studio, lang, size, theme):
    with StudioPage(
        chrome,
        studio.url,
        lang,
        theme,
        size,
        permissions=["clipboard-read", "clipboard-write", "microphone"],
    ) as p:
        if size == "phone":
            p.page.click("[data-do=fold]")
        p.page.click("#kk-source label >> nth=1")
        p.instruct("seconds=0.3")
        p.go()
        p.until("done")
        p.wait_takes(1)
        p.page.focus(".kk-take [data-do=code]")
        assert p.page.get_attribute(".kk-take [data-do=code]", "aria-label") == p.js(
            "KK.t('takes.code')"
        )
        p.page.keyboard.press("Enter")
        assert p.js("document.querySelector('#kk-code').matches(':modal')") and p.violations() == []
        copy = p.page.locator("#kk-code [data-v=client]")
        copy.focus()
        p.page.keyboard.press("Enter")
        p.page.wait_for_function(
            "document.querySelector('#kk-code [role=status]').textContent.includes('webui.client')"
        )
        assert p.js("navigator.clipboard.readText()") == p.js(
            "KK.codeOf(KK.live.takes.data[0], location.origin).client"
        )
        p.page.keyboard.press("r")
        p.page.keyboard.press("d")
        assert p.js("KK.field('kk-seed')?.value ?? ''") == "", "the page's letters are not for here"
        box = p.js(
            "(({left, right, top, bottom}) => [left, innerWidth - right, top, innerHeight -"
            " bottom])(document.querySelector('#kk-code').getBoundingClientRect())"
        )
        assert min(box) >= 0 and p.js("document.documentElement.scrollWidth <= innerWidth")
        p.page.keyboard.press("Escape")
        assert (
            not p.js("document.querySelector('#kk-code').open")
            and p.js("document.activeElement.dataset.do") == "code"
        )
        assert p.js("KK.player.state") == "done" and p.errors == []
