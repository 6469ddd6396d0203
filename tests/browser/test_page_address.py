"""Each tab, a voice of the library and a job have an address: Back, Forward and a reload return
there, and what is gone is said.
"""

from __future__ import annotations

import pytest

from tests.serve import running

from .studio_page import StudioPage

pytestmark = pytest.mark.browser
ROOT = "/voice"
TABS = ("voices", "convert", "batch", "settings")


@pytest.fixture(scope="module")
def below():
    """A studio that is served below a path."""
    with running("--root-path", ROOT) as studio:
        studio.url += ROOT
        yield studio


def at(p: StudioPage, tab: str, tail: str, title: str) -> None:
    """The tab is shown, the address says so and kept what stands before the "#", and so does the
    title.
    """
    p.page.wait_for_function(
        "([tab, title]) => KK.tabNow() === tab && document.title === title", arg=[tab, title]
    )
    assert p.page.url.endswith(f"{ROOT}/?lang={p.js('KK.lang')}&theme=light{tail}"), p.page.url


def focused(p: StudioPage, query: str) -> None:
    p.page.wait_for_function("q => document.activeElement?.matches(q)", arg=query)


def test_every_tab_has_an_address_and_back_and_reload_return_there(chrome, below):
    with StudioPage(chrome, below.url, "zh") as p:
        names = {tab: p.js("k => KK.t('tab.' + k)", tab) + " · 开口" for tab in ("speak", *TABS)}
        at(p, "speak", "", names["speak"])
        for tab in TABS:
            p.page.click(f"[role=tab][aria-controls=kk-tab-{tab}]")
            at(p, tab, f"#{tab}", names[tab])
        p.page.focus("#kk-lang, [data-do=lang]")
        p.page.go_back()
        at(p, "batch", "#batch", names["batch"])
        focused(p, "[role=tab][aria-controls=kk-tab-batch]")
        p.page.reload()
        p.ready()
        at(p, "batch", "#batch", names["batch"])
        p.page.go_back()
        p.page.go_back()
        at(p, "voices", "#voices", names["voices"])
        p.page.go_back()
        at(p, "speak", "", names["speak"])
        p.page.go_forward()
        at(p, "voices", "#voices", names["voices"])
        p.js("KK.setLang('en')")
        p.page.wait_for_function("document.title === 'Voices · Kaikou'")
        p.page.click("#kk-library [data-do=use]")
        p.page.wait_for_function("KK.tabNow() === 'speak' && !location.hash")
        assert not p.errors


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_voice_and_a_job_have_addresses_and_what_is_gone_is_said(chrome, below, lang):
    with StudioPage(chrome, below.url, lang) as p:
        app = p.js("KK.t('app.name')")
        voices, batch = p.js("KK.t('tab.voices')"), p.js("KK.t('tab.batch')")
        voice = p.js("KK.voices().find(v => v.starter).id")
        name = p.js("id => KK.voiceName(KK.voices().find(v => v.id === id))", voice)
        p.page.click("[role=tab][aria-controls=kk-tab-voices]")
        p.page.click(f'.kk-voice a[href$="#voices/{voice}"]')
        at(p, "voices", f"#voices/{voice}", f"{name} · {voices} · {app}")
        assert p.page.locator(".kk-voice[aria-current=true]").count() == 1
        focused(p, f'.kk-voice[aria-current] a[href$="#voices/{voice}"]')
        assert p.violations() == []
        # ---- a job -------------------------------------------------------------------------------
        job = p.js(
            """async voice => (await KK.askStudio("POST", "/v2/synthesize/batch",
            { texts: ["One."], voice, name: "one", async: true })).id""",
            voice,
        )
        p.page.click("[role=tab][aria-controls=kk-tab-batch]")
        p.page.click(f'.kk-job[data-job="{job}"] [data-do=joblines]')
        at(p, "batch", f"#batch/{job}", f"one · {batch} · {app}")
        p.page.reload()
        p.ready()
        at(p, "batch", f"#batch/{job}", f"one · {batch} · {app}")
        focused(p, f'.kk-job[data-job="{job}"] [data-do=joblines][aria-expanded=true]')
        assert p.violations() == []
        p.page.go_back()
        at(p, "batch", "#batch", f"{batch} · {app}")
        p.page.wait_for_selector(f'.kk-job[data-job="{job}"] [aria-expanded=false]')
        p.page.go_back()
        at(p, "voices", f"#voices/{voice}", f"{name} · {voices} · {app}")
        # ---- what is gone, from outside ----------------------------------------------------------
        p.page.goto(f"{below.url}/?lang={lang}&theme=light#voices/voice-gone")
        p.page.reload()
        p.ready()
        focused(p, "#kk-gone")
        assert p.page.inner_text("#kk-gone") == p.js("KK.t('ad.voice')") and p.violations() == []
        p.page.goto(f"{below.url}/?lang={lang}&theme=light#batch/{job[:-1]}")
        focused(p, "#kk-jobsay")
        assert p.page.inner_text("#kk-jobsay") == p.js("KK.t('ad.job')") and p.violations() == []
        for tail in ("#voices/%zz", "#nothing/here", "#batch/..%2F..%2Flogout"):
            p.page.goto(f"{below.url}/?lang={lang}&theme=light{tail}")
            p.page.wait_for_function(
                "t => KK.tabNow() === t", arg=tail[1:].split("/")[0].replace("nothing", "speak")
            )
        assert not p.errors and not [r for r in p.requests if "logout" in r and "#" not in r]
