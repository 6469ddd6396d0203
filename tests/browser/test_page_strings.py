"""The page's words and colours, without a browser: every sentence is used and there, in both
languages; every colour pair can be read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    lang: json.loads((ROOT / "assets" / "lang" / f"{lang}.json").read_text("utf-8"))
    for lang in ("zh", "en")
}
SOURCES = [
    *(ROOT / "assets" / "page").glob("*.js"),
    *(ROOT / "assets" / "player").glob("*.*"),
    *(ROOT / "webui" / "ui").glob("*.py"),
]
CODE = "\n".join(p.read_text("utf-8") for p in SOURCES)
# keys put together at run time: t("w." + code), t(`eng.${state}.s`), T(f"mode.{m}")
PUT_TOGETHER = set(re.findall(r"""["'`]([a-z]+(?:\.[a-z]+)*\.)(?:["'`]\s*\+|\$\{|\{)""", CODE))
LETTERED = re.compile(r"^[dep]\.\w+$")  # style chips: LETTER[group] + "." + key


def test_both_languages_say_the_same_things():
    assert TABLES["zh"].keys() == TABLES["en"].keys()
    for key, zh in TABLES["zh"].items():
        en = TABLES["en"][key]
        assert zh.strip() and en.strip(), key
        assert set(re.findall(r"\{\w+\}", zh)) == set(re.findall(r"\{\w+\}", en)), key
        assert "!" not in en and "！" not in zh, key
        assert key in ("app.name", "lang.zh") or not re.search(r"[\u4e00-\u9fff]", en), key


def test_every_used_key_is_there():
    used = set(
        re.findall(r"""(?:\bt|\bT|toast\(t|say)\(\s*["']([a-z]+(?:\.\w+)+)["']""", CODE)
    ) | set(re.findall(r'data-(?:t|a|tip)="([a-z]+(?:\.\w+)+)"', CODE))
    assert used and not used - TABLES["zh"].keys()


def test_every_key_is_used():
    def is_used(key: str) -> bool:
        return (
            any(q + key + q in CODE for q in "\"'`")
            or any(key.startswith(p) for p in PUT_TOGETHER)
            or bool(LETTERED.match(key))
        )

    assert [k for k in TABLES["zh"] if not is_used(k)] == []


@pytest.mark.parametrize("prefix", ["w."])
def test_every_warning_brings_its_cure(prefix):
    codes = {k.split(".")[1] for k in TABLES["zh"] if k.startswith(prefix) and k != "w.undo"}
    health = (ROOT / "assets" / "page" / "clip_fixes.js").read_text("utf-8")
    for code in codes:
        assert f"w.{code}.fix" in TABLES["zh"], code
        assert re.search(rf"\b{code}: ", health), f"no cure for {code}"


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_built_in_voice_understands_what_its_chips_write(lang):
    """A chip that is not greyed must do what it says, in both languages."""
    from webui.engine.espeak.instructions import DIALECTS, STYLES, read, understood

    words = TABLES[lang]
    for style in STYLES:
        piece = (
            words["i.dialect"].format(d=words["d." + style])
            if style in DIALECTS
            else words["i." + style]
        )
        sentence = words["i.say"].format(w=piece)
        assert style in understood(sentence)[0], sentence
        if style in DIALECTS:
            assert read(sentence).dialect == style


def tokens(dark: bool) -> dict[str, str]:
    css = (ROOT / "assets" / "style" / "page.css").read_text("utf-8")
    block = re.search(
        r"^\.dark \{(.*?)^\}" if dark else r"^:root \{(.*?)^\}", css, re.S | re.M
    ).group(1)
    return dict(re.findall(r"--kk-([\w-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


WORDS = [
    ("text", "bg"),
    ("text", "surface"),
    ("text", "well"),
    ("text-2", "surface"),
    ("text-2", "bg"),
    ("text-2", "well"),
    ("text-3", "field"),
    ("on-accent", "accent"),
    ("on-accent", "accent-hover"),
    ("accent-text", "accent-soft"),
    ("accent-text", "surface"),
    ("accent-text", "bg"),
    ("warn", "warn-soft"),
    ("warn", "surface"),
    ("bad", "bad-soft"),
    ("bad", "surface"),
    ("surface", "text"),
]
EDGES = [
    ("line-control", "bg"),
    ("line-control", "surface"),
    ("accent", "surface"),
    ("accent", "bg"),
    ("warn-mark", "surface"),
    ("bad-mark", "surface"),
]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_contrast_of_every_pair(dark):
    c = tokens(dark)
    assert {
        f"{a} on {b}": round(contrast(c[a], c[b]), 2)
        for a, b in WORDS
        if contrast(c[a], c[b]) < 4.5
    } == {}
    assert {
        f"{a} on {b}": round(contrast(c[a], c[b]), 2) for a, b in EDGES if contrast(c[a], c[b]) < 3
    } == {}
