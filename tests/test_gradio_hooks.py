"""What of Gradio's own markup the page names, and why: another release may draw it differently, so
the list may only become shorter.
"""

from __future__ import annotations

from collections import Counter

from scripts.house_table import ROOT, hooks

RECORDER = "a part of gr.Audio, which has neither words nor classes of the page's own"
# name of a class or attribute: (places, why the page needs it)
HOOKS = {
    "block": (2, "the fieldset of a gr.Radio, for its name and its arrow keys"),
    "dark": (6, "Gradio's own word for its dark colours, which its sheets and the page's share"),
    "data-tab-id": (3, "which tab a button of gr.Tabs opens"),
    "data-testid": (8, "words of gr.Audio and names of gr.Radio that have no class"),
    "label-wrap": (2, "the button of a gr.Accordion, which says by a class whether it is open"),
    "reset-button": (1, "the button of a gr.Slider that has no name in the page's language"),
    "on": (1, "the page's own bars, drawn in the colour of what was played"),
    "source-selection": (20, RECORDER),
    "standard-player": (13, RECORDER),
    "stop-button": (6, RECORDER),
    "stop-button-paused": (5, RECORDER),
    "record-button": (3, RECORDER),
    "pause-button": (3, RECORDER),
    "resume-button": (3, RECORDER),
    "icon-button-wrapper": (6, RECORDER),
    "upload-container": (1, RECORDER),
    "mic-select": (2, RECORDER),
    "or": (2, RECORDER),
    "selected": (1, RECORDER),
    "audio-container": (2, RECORDER),
    "center": (1, RECORDER),
    "icon-wrap": (2, RECORDER),
    "wrap": (1, RECORDER),
    "component-wrapper": (1, RECORDER),
    "record": (1, RECORDER),
    "controls": (2, RECORDER),
    "time": (1, RECORDER),
    "wrapper": (1, RECORDER),
}


def test_each_place_that_names_what_gradio_draws_has_a_reason():
    found = Counter(name for _, name in hooks(ROOT))
    assert found == {name: places for name, (places, _) in HOOKS.items()}


def test_a_place_is_a_rule_or_a_string_that_names_what_is_not_the_pages_own(tmp_path):
    page, style = tmp_path / "assets" / "page", tmp_path / "assets" / "style"
    page.mkdir(parents=True)
    style.mkdir()
    (page / "one.js").write_text(
        "// .record-button\n"
        "live.form.wrap = KK.tab(`${box} .record-button`, '.label-wrap, .label-wrap b');\n"
        'say("bar.play", "#kk-text .kk-card [role=tab]", `<p class="x">.wrap</p>`);\n'
    )
    (page / "demo.js").write_text("main.querySelector('.wrap')")
    (style / "page.css").write_text(
        "/* .block */ #kk-app .form, #kk-app .form b { gap: 0.5em }\n"
        "@media (min-width: 1px) { .kk-card:has(> [data-testid=a]) { color: red } }"
    )
    assert sorted(hooks(tmp_path)) == [
        ("one.js", "label-wrap"),
        ("one.js", "record-button"),
        ("page.css", "data-testid"),
        ("page.css", "form"),
    ]
