"""How many readings of two public suites of text normalisers (tests/data/readings) ours agree with,
and where they differ on purpose.

`python -m tests.unit.test_public_readings` prints the counts and every difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from webui.text.clean import clean
from webui.text.pipeline import normalise

DATA = Path(__file__).parent.parent / "data" / "readings"
BETWEEN = {"wetext": " => ", "nemo": "~"}
# Counts of agreement: no change may lower them.
AT_LEAST = {("wetext", "zh"): 79, ("wetext", "en"): 75, ("nemo", "zh"): 71, ("nemo", "en"): 112}

# What the suites wish otherwise (the head of the text) and why ours stays. A difference that is not
# here is a fault.
TASTE = {
    "the month comes before its day in the American voice, also where the day is written first": (
        "jan. 5", "2012", "2024-05-06", "this is 12th game", "The National Map", "15-01-2020",
        "15.01.2020",
    ),
    "a year of two digits is said whole": ("11/17/05", "01/07/98"),
    "a fragment: nothing says that it is an emergency call, a date, a title, a state or a year": (
        "110", "-2010.10", "Hon.", "Mt.", "Maj.", "Rev.", "Stroudsburg", "IV", "2999", "1000",
        "1001", "1980 s", "12/kg", "2x8 m2",
        "12/2/2", "12.2.3", "文件上的标注日期", "50年", "2934ad", "2934a.d.",
    ),
    "four digits alone are read as a year": ("1111", "340 A.D", "1980-1970 kg"),
    "decimals are read with zero, and alike everywhere in a sentence": ("-12.5006 billion",
        '.345" and'),
    "said so by people: 零下 for degrees, 元, 号, 零四分, 下午, o'clock to twelve, seconds": (
        "-23°C", "￥5", "2015年08月08号", "6号", "03:04", "10:04pm", "23:00", "$250-$300", "80 s",
    ),
}  # fmt: skip


def same(text: str) -> str:
    """What two readings of one text have in common: neither punctuation, capitals nor "and" and
    "the" make them different.
    """
    words = re.sub(r"\b([ap]) m\b", r"\1m", clean(text).casefold())
    words = re.sub(r"\b(?:and|the)\b|[^\w\s]", " ", words).replace("negative", "minus")
    return "".join(words.split()).replace("幺", "一")


@cache
def compared(suite: str) -> list[tuple[str, str, str, str]]:
    """(language, written, theirs, ours) of each case."""
    return [
        (language, text, expected, normalise(clean(text), language))
        for language, text, expected in _cases(suite)
    ]


def _cases(suite: str) -> Iterator[tuple[str, str, str]]:
    language = ""
    for line in (DATA / f"{suite}.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            language = line.split()[1]
        else:
            text, _, expected = line.partition(BETWEEN[suite])
            yield language, text, expected


def agreed(suite: str, language: str) -> tuple[int, int]:
    """(cases in which ours agree, all)"""
    rows = [row for row in compared(suite) if row[0] == language]
    return sum(same(expected) == same(actual) for _, _, expected, actual in rows), len(rows)


@pytest.mark.parametrize(("suite", "language"), AT_LEAST)
def test_ours_agree_with_a_public_suite(suite, language):
    assert agreed(suite, language)[0] >= AT_LEAST[suite, language]


@pytest.mark.parametrize("suite", BETWEEN)
def test_every_difference_has_a_reason(suite):
    heads = tuple(head for heads in TASTE.values() for head in heads)
    odd = [row for row in compared(suite) if same(row[2]) != same(row[3])]
    assert [row for row in odd if not row[1].startswith(heads)] == []


if __name__ == "__main__":
    for suite, language in AT_LEAST:
        n_agreed, n_cases = agreed(suite, language)
        print(f"{suite} {language}: {n_agreed} of {n_cases}")
    for suite in BETWEEN:
        for _, text, reading, actual in compared(suite):
            if same(reading) != same(actual):
                print(f"  {text[:50]} | theirs: {reading[:60]} | ours: {actual[:60]}")
