"""Clauses of a text that is still arriving: given as soon as they are complete, cut the same
however the text comes.
"""

from __future__ import annotations

import random

import pytest

from webui.text import ClauseStream, weight

TEXTS = (
    "你好，今天天气真好。我们去公园吧！带上3.5升水，2026年1，000人：好的……嗯，走”吧。",
    (
        "Hello there, this is Dr. Smith. It costs $3,000.50 at 3:30 p.m. and, well, that's it."
        ' "Quite right!" he said. Go to a.b?c=d now! OK'
    ),
    "一" * 150 + "。" + "word " * 100 + "x" * 500,
    "。。。，，，!!! \n\n 1. Apples 2. Pears. 好",
    "嗯…好吧……那就这样——真的 - really。",
    "a,b.c!d?e;f",
    "",
    " \n ",
    "。" * 300,
)


def cut(text: str, sizes) -> list[tuple[str, bool]]:
    clauses, out, at = ClauseStream(), [], 0
    while at < len(text):
        n = next(sizes)
        out += clauses.push(text[at : at + n])
        at += n
    return [(c.text, c.ends_sentence) for c in out + clauses.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_where_it_is_cut_does_not_depend_on_the_pieces_it_came_in(text):
    whole = cut(text, iter([max(1, len(text))]))
    assert cut(text, iter(lambda: 1, 0)) == whole
    for seed in range(40):
        assert cut(text, iter(random.Random(seed).choices(range(1, 10), k=len(text) + 1))) == whole
    letters = [c for c in text if c.isalnum()]
    assert [c for clause, _ in whole for c in clause if c.isalnum()] == letters, (
        "nothing that is spoken is lost or moved"
    )
    assert all(weight(clause) <= 60 and any(c.isalnum() for c in clause) for clause, _ in whole)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("你好，", "你好，"),
        ("好。", "好。"),
        ("Sure! ", "Sure!"),
        ("Hello there, ", "Hello there,"),
        ("第一\n", "第一"),
        ("Yes. ", "Yes."),
    ],
)
def test_a_complete_clause_is_given_at_once(text, first):
    assert [c.text for c in ClauseStream().push(text)] == [first]


@pytest.mark.parametrize(
    "text",
    [
        "你好",
        "Hello,",
        "It costs 3.",
        "This is Dr. ",
        "At 3:",
        "一共1，",
        "Hi, ",
        "1. ",
        "。。！",
        "e.g. ",
        "Visit example.",
    ],
)
def test_what_may_go_on_is_held_back_until_it_is_flushed(text):
    clauses = ClauseStream()
    assert clauses.push(text) == []
    assert len(clauses.flush()) == any(c.isalnum() for c in text) and clauses.flush() == []


def test_later_clauses_are_longer_than_the_first():
    assert [
        c.text for c in ClauseStream().push("你好，是的，好的，可以的，没有问题，一会儿见，")
    ] == [
        "你好，",
        "是的，好的，可以的，没有问题，",
    ]


def test_little_is_held_back_whatever_comes():
    for text in ("x" * 9000, "，" * 9000, "字" * 9000, " " * 9000, "1,2" * 3000):
        clauses = ClauseStream()
        for at in range(0, len(text), 50):
            clauses.push(text[at : at + 50])
            assert weight(clauses._buffer) <= 60
