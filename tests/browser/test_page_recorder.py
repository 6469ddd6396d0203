"""The recorder: it can be ended after three seconds and not before, and a take that is too short
goes on where it was, as long as the visitor wants it to.
"""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest

from .studio_page import StudioPage, browser, clip

pytestmark = pytest.mark.browser
END = "#kk-ref [data-do=endclip]"
# runs(s): the clock that the recorder counts with goes on for s seconds and stands then, so that
# nothing is missed, however slow the machine; never faster than the sound
CLOCK = """{
      const real = performance.now.bind(performance);
      let lag = 0,
        most = Infinity;
      performance.now = () => Math.min(real() - lag, most);
      window.runs = s => {
        const now = performance.now();
        lag = real() - now;
        most = now + s * 1000;
      };
    }"""


@pytest.fixture(scope="module")
def chrome(tmp_path_factory):
    """Two seconds of a voice, then nothing: into this microphone nobody says enough at a time."""
    recording, voice_file = (
        io.BytesIO(clip(2.0, 48000)),
        tmp_path_factory.mktemp("mic") / "voice.wav",
    )
    with wave.open(recording) as r, wave.open(str(voice_file), "wb") as w:
        w.setparams(r.getparams())
        w.writeframes(r.readframes(r.getnframes()) + bytes(48000 * 2 * 20))
    with browser(
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={voice_file}%noloop",
    ) as b:
        yield b


@pytest.fixture
def page(chrome, studio):
    with StudioPage(chrome, studio.url, "en", init=CLOCK) as p:
        yield p
        assert not p.errors


def began(p: StudioPage) -> None:
    p.page.click("#kk-ref [data-do=soundsource][data-v=mic]")
    p.page.click("#kk-ref [data-do=recordclip]")
    p.page.wait_for_selector(END + "[aria-disabled=true]")


def ended(p: StudioPage, before: str = "") -> dict:
    """Pressed as soon as it may be; the draft that comes of it."""
    words = p.js(
        """q =>
          new Promise(done => {
            const press = () => {
              const end = document.querySelector(q);
              if (end?.ariaDisabled !== "false") return;
              look.disconnect();
              const words = end.innerText;
              end.click();
              done(words);
            };
            const look = new MutationObserver(press);
            look.observe(document.body, { subtree: true, attributeFilter: ["aria-disabled"] });
            press();
          })""",
        END,
    )
    assert words.strip() == "Finish"
    p.page.wait_for_function("id => KK.draft() && KK.draft().id !== id", arg=before)
    return p.js("KK.draft()")


@pytest.mark.parametrize(("lang", "size"), [("zh", "wide"), ("en", "tablet"), ("zh", "phone")])
def test_words_fit_their_button_and_nothing_moves_when_they_change(chrome, studio, lang, size):
    places = """Object.fromEntries(
          ["[data-do=endclip]", "[data-do=pauseclip]", "[data-mic]", "[data-v=upload]",
           "[data-v=mic]", "[data-do=removeclip]"].map(s => {
            const e = document.querySelector("#kk-ref " + s),
              r = e.getBoundingClientRect(),
              box = document.querySelector("#kk-ref").getBoundingClientRect();
            return [
              s,
              {
                at: [r.x, r.y, r.width, r.height],
                spills: e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1,
                out: r.right > box.right || r.bottom > box.bottom
              }
            ];
          })
        )"""
    with StudioPage(chrome, studio.url, lang, size=size, init=CLOCK) as p:
        p.js("runs(0)")
        if size == "phone":
            p.page.click("[data-do=fold]")
        began(p)
        p.page.wait_for_selector("#kk-ref [data-mic] option", state="attached")
        early, before = p.js(places), None
        while early != before:  # what Gradio shows of the microphones comes a little later
            p.page.wait_for_timeout(300)
            early, before = p.js(places), early
        p.js("runs(Infinity)")
        p.page.wait_for_selector(END + "[aria-disabled=false]")
        late = p.js(places)
        p.page.click(END)
        p.page.wait_for_function("KK.draft()")
    assert not [
        s for layout in (early, late) for s, x in layout.items() if x["spills"] or x["out"]
    ], (
        early,
        late,
    )
    assert early == late


def test_a_recording_shows_that_it_runs_and_its_line_is_the_transcript(chrome, studio):
    row = "#kk-ref .kk-recrow"
    line = "清晨的阳光照进窗子，新的一天就这样开始了。"
    with StudioPage(chrome, studio.url, "zh", init=CLOCK) as p:
        p.js("runs(0)")
        p.page.click("#kk-ref [data-do=soundsource][data-v=mic]")
        p.page.wait_for_selector(row + "[data-on=false]")
        p.page.wait_for_selector("#kk-ref [data-do=recordclip]")
        p.js("""() => { window.loudest = 0; const mic = document.querySelector("#kk-ref");
            new MutationObserver(() => { const bar = mic.querySelector(".kk-level i");
              loudest = Math.max(loudest, parseFloat(bar?.style.transform.slice(7)) || 0); })
            .observe(mic, {subtree: true, childList: true, attributes: true}); }""")
        first = p.js(f"""() => {{ document.querySelector("#kk-ref [data-do=recordclip]").click();
            return document.querySelector("{END}").textContent; }}""")
        assert "结束" in first and "秒" in first, "before the browser has given its leave"
        p.page.wait_for_selector(row + "[data-on=true]")
        p.js("runs(1.3)")
        p.page.wait_for_function(
            "q => document.querySelector(q).textContent.includes('0:01')", arg=row
        )
        p.page.wait_for_function("loudest > 0.2")
        assert p.violations() == []
        p.js("runs(Infinity)")
        p.page.wait_for_selector(END + "[aria-disabled=false]")
        assert p.page.inner_text(END).strip() == "结束"
        p.page.click(END)
        p.page.wait_for_function("KK.draft()")
        p.page.wait_for_function("s => KK.field('kk-transcript').value === s", arg=line)
        assert "已填入提示的朗读句" in p.page.inner_text("#kk-fit")
        assert p.violations() == []
        p.page.fill("#kk-transcript textarea", "我说的是别的话。")
        p.page.wait_for_function("!document.querySelector('#kk-fit').innerText.includes('朗读句')")
        p.page.fill("#kk-transcript textarea", line)
        p.page.click("#kk-ref [data-do=removeclip]")
        p.page.wait_for_function("!KK.draft()")
        p.page.click("#kk-ref [data-do=soundsource][data-v=upload]")
        p.upload(clip(4.0))
        p.page.wait_for_function("KK.draft()")
        p.page.wait_for_function("KK.field('kk-transcript').value === ''")
        assert not p.errors


def samples(p: StudioPage, draft: dict) -> np.ndarray:
    answer = p.context.request.get(f"{p.url}/tts/draft/{draft['id']}/audio?clean=0")
    with wave.open(io.BytesIO(answer.body())) as w:
        return np.frombuffer(w.readframes(w.getnframes()), "<i2")


def test_the_end_comes_after_three_seconds_and_a_short_take_goes_on(page):
    p = page
    p.js("runs(0)")
    began(p)
    assert "3 s to go" in p.page.inner_text(END)
    p.page.click(END, force=True)
    p.page.keyboard.press("r")
    p.js("runs(2.5)")
    p.page.wait_for_function(
        "document.querySelector('#kk-ref [data-do=endclip]').textContent.includes('1 s to go')"
    )
    p.js("runs(Infinity)")
    first = ended(p)
    assert first["report"]["duration_s"] > 2.9, "pressed too early, it ends nothing"
    assert [w["code"] for w in first["report"]["warnings"]][:1] == ["too_short"]
    p.page.click("[data-do=fix][data-code=too_short]")
    p.page.wait_for_selector(END + "[aria-disabled=true]")
    assert p.js("KK.draft().id") == first["id"] and p.page.is_visible("[data-code=too_short]"), (
        "the clip stays while more is recorded"
    )
    second = ended(p, first["id"])
    first_samples, second_samples = samples(p, first), samples(p, second)
    assert second["report"]["duration_s"] > first["report"]["duration_s"] + 2.9
    assert np.array_equal(second_samples[: len(first_samples) - 2000], first_samples[:-2000]), (
        "what was said before comes first"
    )
    assert "too_short" not in [w["code"] for w in second["report"]["warnings"]]


def test_whoever_begins_anew_or_brings_a_file_keeps_nothing(page):
    p = page
    began(p)
    first = ended(p)
    p.page.keyboard.press("r")
    p.page.wait_for_selector(END + "[aria-disabled=true]")
    second = ended(p, first["id"])
    assert second["report"]["duration_s"] < first["report"]["duration_s"] + 1, (
        "R is a recording of its own"
    )
    p.page.click("[data-do=fix][data-code=too_short]")
    p.page.wait_for_selector(END + "[aria-disabled=true]")
    p.page.click("#kk-ref [data-do=soundsource][data-v=upload]")
    p.page.wait_for_function("!KK.draft()")
    p.page.wait_for_selector("#kk-ref input[type=file]", state="attached")
    p.upload(clip(4.0))
    p.page.wait_for_function("KK.draft()")
    assert 3.9 < p.js("KK.draft().report.duration_s") < 4.1


def test_a_pause_does_not_count(page):
    p = page
    p.js("runs(0)")
    began(p)
    p.js("runs(1.5)")
    p.page.wait_for_function(
        "document.querySelector('#kk-ref [data-do=endclip]').textContent.includes('2 s to go')"
    )
    p.page.click("#kk-ref [data-do=pauseclip]")
    p.js("runs(Infinity)")
    p.page.wait_for_timeout(3200)
    paused = p.page.locator("#kk-ref [data-do=endclip]")
    assert "to go" in paused.inner_text()
    paused.click(force=True)
    p.page.click("#kk-ref [data-do=pauseclip]")
    assert ended(p)["report"]["duration_s"] > 2.9


def test_a_recording_that_nobody_ends_ends_by_itself(page):
    p = page
    p.page.clock.install()
    before = p.js("Date.now()") / 1000
    began(p)
    after = p.js("Date.now()") / 1000
    p.page.wait_for_selector(END + "[aria-disabled=false]")
    p.page.clock.pause_at(before + 29.9)
    p.page.wait_for_timeout(300)
    assert p.page.is_visible(END) and p.js("KK.draft()") is None, "not before half a minute"
    p.page.clock.pause_at(after + 30.3)
    p.page.wait_for_selector(END, state="hidden")
    p.page.clock.resume()
    p.page.wait_for_function("KK.draft()")


def test_the_chosen_microphone_is_the_one_that_records(page):
    p = page
    p.js("""() => {
        window.asked = [];
        const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = wish => { asked.push(wish.audio); return ask(wish); };
    }""")
    p.page.click("#kk-ref [data-do=soundsource][data-v=mic]")
    chooser = p.page.locator("#kk-ref [data-mic]")
    chooser.wait_for()
    assert chooser.get_attribute("aria-label") == "Microphone"
    chosen = chooser.locator("option").last.get_attribute("value")
    chooser.select_option(chosen)
    p.page.click("#kk-ref [data-do=recordclip]")
    p.page.wait_for_selector("#kk-ref .kk-recrow[data-on=true]")
    assert p.js("asked") == [True, {"deviceId": {"exact": chosen}}]
    assert chooser.is_disabled() and chooser.input_value() == chosen


def test_a_recording_is_made_by_the_keyboard_and_may_be_given_up(page):
    p = page
    p.page.focus("#kk-ref [data-do=soundsource][data-v=mic]")
    p.page.keyboard.press("Enter")
    p.page.wait_for_selector("#kk-ref [data-do=recordclip]")
    p.page.focus("#kk-ref [data-do=recordclip]")
    p.page.keyboard.press("Space")
    p.page.wait_for_selector("#kk-ref .kk-recrow[data-on=true]")
    assert p.js("document.activeElement.dataset.do") == "endclip"
    assert p.violations() == []
    p.page.click("#kk-ref [data-do=removeclip]")
    p.page.wait_for_selector("#kk-ref .kk-recrow[data-on=false]")
    assert p.js("document.activeElement.dataset.do") == "recordclip"
    assert p.js("KK.draft()") is None
    p.page.keyboard.press("Enter")
    p.page.wait_for_selector(END + "[aria-disabled=false]")
    p.page.keyboard.press("Enter")
    p.page.wait_for_function("KK.draft()")
    assert p.js("document.activeElement.closest('#kk-ref') !== null")


def test_the_microphone_is_let_go_when_it_ends_or_is_given_up(page):
    p = page
    p.js("""() => {
        window.streams = [];
        const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async wish => {
            const stream = await ask(wish);
            streams.push(stream);
            return stream;
        };
    }""")
    began(p)
    p.page.wait_for_function("streams.filter(s => s.active).length === 1")  # not the one that asked
    ended(p)
    assert p.js("streams.some(s => s.active)") is False
    p.page.keyboard.press("r")
    p.page.wait_for_selector("#kk-ref .kk-recrow[data-on=true]")
    p.page.click("#kk-ref [data-do=soundsource][data-v=upload]")
    p.page.wait_for_selector("#kk-ref .kk-drop")
    assert p.js("streams.some(s => s.active)") is False
