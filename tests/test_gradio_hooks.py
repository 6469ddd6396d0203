"""What of Gradio's own markup the page names, and why: another release may draw it differently, so
the list may only become shorter.
"""

from __future__ import annotations

from collections import Counter

from scripts.house_table import ROOT, hooks

# name of a class or attribute: (places, why the page needs it)
HOOKS = {
    "dark": (6, "Gradio's own word for its dark colours, which its sheets and the page's share"),
}


def test_each_place_that_names_what_gradio_draws_has_a_reason():
    counts = Counter(name for _, name in hooks(ROOT))
    assert counts == {name: places for name, (places, _) in HOOKS.items()}


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
