"""A text that is still being written, and the stream of its sound: runs, waiting, ending; with hand-made engines."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from webui.errors import BadInput, EngineFault
from webui.studio.arriving import Arriving, Written
from webui.types import Chunk, Prompt, SpeechRequest, part_seed

REQUEST, PROMPT = SpeechRequest("job", "a", "v", seed=2**63 - 1), Prompt("e", "1", "f", b"")


def written(language: str = "auto", said=None) -> Written:
    return Written(said or (lambda clause, own: [f"{own}:{clause}"]), language, [])


class ByClause:
    def __init__(self):
        self.asked, self.closed = [], 0

    def stream(self, request, prompt, lane):
        self.asked.append((request.segments, request.seed, lane))
        try:
            for n in range(2):
                yield Chunk(n, np.full(10, n, np.float32), 10 * n, 0, n == 1)
        finally:
            self.closed += 1


class Reading(ByClause):
    """A chunk for each piece, and one that is the last."""

    def stream_text(self, request, prompt, pieces):
        self.asked.append(([], request.seed, None))
        for n, piece in enumerate(pieces):
            self.asked[-1][0].append(piece)
            yield Chunk(n, np.full(10, n, np.float32), 10 * n, 0, False)
        yield Chunk(n + 1, np.full(5, 9, np.float32), 10 * n + 10, 0, True)


def test_clauses_are_spoken_one_after_the_other_as_one_stream():
    text, engine = written("zh"), ByClause()
    stream, chunks = Arriving(engine, REQUEST, PROMPT, text, 1), []
    assert not text.can_step
    text.push("你好，今天天气真好。")
    while text.can_step:
        chunks.append(next(stream))
    assert not text.is_spent
    text.push("走吧")
    assert not text.can_step
    text.end()
    while not chunks[-1].last:
        chunks.append(next(stream))
    assert text.is_spent
    assert (
        [c.number for c in chunks] == list(range(7))
        and [c.start for c in chunks] == [0, 10, 20, 30, 40, 50, 60]
        and [c.segment for c in chunks] == [0, 0, 1, 1, 2, 2, 2]
    )
    assert [c.last for c in chunks] == [False] * 6 + [True] and not len(chunks[-1].samples)
    assert engine.closed == 3 and engine.asked == [
        (("zh:你好，",), REQUEST.seed, 1),
        (("zh:今天天气真好。",), part_seed(REQUEST.seed, 1), 1),
        (("zh:走吧",), part_seed(REQUEST.seed, 2), 1),
    ]
    settled = text.settled(REQUEST)
    assert (
        settled.text == "你好，今天天气真好。走吧"
        and settled.segments == ("zh:你好，", "zh:今天天气真好。", "zh:走吧")
        and settled.seed == REQUEST.seed
    )


def test_an_engine_that_reads_has_runs_that_end_with_a_long_sentence_a_flush_or_the_text():
    text, engine = written(said=lambda clause, own: [clause]), Reading()
    text.push("甲乙丙，" + "字" * 30 + "，" + "字" * 28 + "。" + "Then one, " + "two words. ")
    text.flush()
    text.push("And. Now")
    text.end()
    stream, chunks = Arriving(engine, REQUEST, PROMPT, text, None), []
    while not chunks or not chunks[-1].last:
        chunks.append(next(stream))
    assert [pieces for pieces, _, _ in engine.asked] == [
        ["甲乙丙，", "字" * 30 + "，", "字" * 28 + "。"],
        ["Then one, two words."],
        ["And. Now"],
    ]
    assert [seed for _, seed, _ in engine.asked] == [
        REQUEST.seed,
        *(part_seed(REQUEST.seed, n) for n in (3, 4)),
    ]
    assert sorted({c.segment for c in chunks}) == [0, 3, 4]


def test_blanks_stand_between_words_and_nowhere_else():
    text, engine = written(said=lambda clause, own: [clause]), Reading()
    text.push("Hello there, this is good. 很好的事情。Yes it is. ")
    text.end()
    stream = Arriving(engine, REQUEST, PROMPT, text, None)
    while not next(stream).last:
        pass
    assert "".join(engine.asked[0][0]) == "Hello there, this is good.很好的事情。Yes it is."


def test_who_reads_waits_for_the_writer_and_is_let_go():
    text = written(said=lambda clause, own: [clause])
    got, done = [], threading.Event()

    def read():
        got.extend(text.run())
        done.set()

    text.push("好。")
    threading.Thread(target=read, daemon=True).start()
    while not text.is_starved:
        done.wait(0.001)
    assert got == ["好。"] and not done.is_set()
    text.close()
    assert done.wait(5) and not text.is_starved and text.fed_s > 0


def test_half_a_character_waits_for_the_other_half():
    text = written()
    text.push("好\ud83d")
    text.push("\ude00吗")
    assert text.text == "好😀吗"
    for broken in ("\ude00", "x\ud83dy", "\ud83d\ud83d!"):
        with pytest.raises(BadInput) as error:
            text.push(broken)
        assert error.value.code == "bad_text"
    text.push("\ud83d")
    text.end()
    assert text.text == "好😀吗"


def test_a_text_without_end_is_refused_where_it_is_too_long_and_not_before():
    text = written()
    for _ in range(4):
        text.push("字" * 1024)
    with pytest.raises(BadInput) as error:
        text.push("字")
    assert error.value.code == "too_long_text" and len(text.text) == 4096
    text.push("")
    text.end()


def test_figures_alone_go_with_the_text_around_them():
    text = written()
    for delta in "1234567890%！增长了很多很多。1234567890%！Now the others: 1234567890%! ":
        text.push(delta)
    text.end()
    assert text.pieces == [
        "auto:1234567890%！",
        "auto:增长了很多很多。",
        "zh:1234567890%！",
        "auto:Now the others: 1234567890%!",
    ]


def test_news_are_told_and_whether_they_were_waited_for():
    told, text = [], written()
    text.listen(told.append)
    text.push("你")
    assert told == []
    text.push("好，")
    text.push("今天天气真好。")
    assert told == [True, False]
    text.flush()
    text.end()
    text.close()
    assert told == [True, False, False, False]


def test_a_stream_that_breaks_off_is_a_fault_not_an_end():
    class Broken(ByClause):
        def stream(self, request, prompt, lane):
            yield Chunk(0, np.ones(4, np.float32), 0, 0, False)

    text = written()
    text.push("好。")
    stream = Arriving(Broken(), REQUEST, PROMPT, text, 0)
    next(stream)
    with pytest.raises(EngineFault):
        next(stream)
