"""One word for one meaning: docs/glossary.md, and what the page, the included voices and the README
make of it.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.conftest import ROOT

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
README = "".join(
    (ROOT / name).read_text("utf-8")
    for name in ("README.md", "README.zh.md", "docs/models.md", "docs/zh/models.md")
)
ZH, EN = (
    json.loads((ROOT / "assets" / "lang" / f"{lang}.json").read_text("utf-8"))
    for lang in ("zh", "en")
)
VOICES = json.loads((ROOT / "assets" / "voices" / "voices.json").read_text("utf-8"))


def rows(after: str) -> list[list[str]]:
    """Cells of the table that follows `after`, without its head."""
    lines = GLOSSARY.split(after, 1)[1].split("|---", 1)[1].splitlines()[1:]
    table = lines[: next((i for i, line in enumerate(lines) if not line.startswith("|")), None)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


TERMS = {row[0]: row[1:] for row in rows("# 词汇表")}
NOT_USED = [row[0] for row in rows("## 不用的说法")]
# Whichever language has the word, so has the other: in every sentence of the page.
ALWAYS_TOGETHER = (
    "re-roll",
    "pronunciation dictionary",
    "phonetics",
    "demo link",
    "start of playback",
    "zero-shot clone",
)


def plain_forms(sentence: str) -> str:
    """As it is read, forms for one and for many included, small letters."""
    return re.sub(r"\{\w+\|([^|}]*)\|([^}]*)\}", r"\1 \2", sentence).lower()


@pytest.mark.parametrize("variant", NOT_USED)
def test_a_variant_is_used_nowhere(variant):
    named = [v[k] for v in VOICES for k in ("name", "name_zh")]
    keys = [k for t in (ZH, EN) for k, v in t.items() if variant.lower() in v.lower()]
    assert keys == [] and variant not in named
    assert variant.lower() not in README.lower()
    if not variant.isascii():
        sources = [*(ROOT / "webui").rglob("*.py"), *(ROOT / "webui" / "messages").glob("*.json")]
        paths = [p for p in sources if variant in p.read_text("utf-8")]
        assert [p.name for p in paths if p.name != "instructions.py"] == []  # it understands them


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_the_same_pair_wherever_it_is_used(term):
    zh, en, meaning, pages = TERMS[term]
    used = re.findall(r"`([\w.]+)`(\*?)", pages)
    assert meaning and used
    for key, is_shorter in used:
        is_used = zh in ZH[key], en.lower() in plain_forms(EN[key])
        assert any(is_used) if is_shorter else all(is_used), (key, ZH[key], EN[key])


@pytest.mark.parametrize("term", ALWAYS_TOGETHER)
def test_a_terms_pair_stands_together_in_every_sentence(term):
    zh, en = TERMS[term][:2]
    apart = [
        k
        for k in ZH
        if (zh in ZH[k]) != bool(re.search(rf"\b{re.escape(en.lower())}", plain_forms(EN[k])))
    ]
    assert apart == []


def test_the_included_voices_are_called_as_the_glossary_has_it():
    names = [(v["name_zh"], v["name"]) for v in VOICES]
    assert names == [tuple(row) for row in rows("## 随附音色的名字")]
    assert all(len(set(column)) == len(names) for column in zip(*names, strict=True))
