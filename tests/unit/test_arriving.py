"""A text that is still being written, and the stream of its sound: runs, waiting, ending; with
hand-made engines.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from webui.errors import BadInput, EngineFault
from webui.studio.text_source import TextSource, TextSourceStream
from webui.types import Chunk, Prompt, Segmentation, SpeechRequest, part_seed

REQUEST, PROMPT = SpeechRequest("job", "a", "v", seed=2**63 - 1), Prompt("e", "1", "f", b"")


RULE = Segmentation(80, 60, 20)


def new_text(language: str = "auto", normalise=None, **more) -> TextSource:
    return TextSource(normalise or (lambda clause, own: [f"{own}:{clause}"]), language, [], **more)


def reads() -> TextSource:
    """For an engine that reads while it speaks."""
    return new_text(normalise=lambda clause, own: [clause], rule=RULE, is_read=True)


class ByClause:
    def __init__(self):
        self.requests, self.closed = [], 0

    def stream(self, request, prompt, lane):
        self.requests.append((request.segments, request.seed, lane))
        try:
            for n in range(2):
                yield Chunk(n, np.full(10, n, np.float32), 10 * n, 0, n == 1)
        finally:
            self.closed += 1


class Reading(ByClause):
    """A chunk for each piece, and one that is the last."""

    def stream_text(self, request, prompt, pieces):
        self.requests.append(([], request.seed, None))
        for n, piece in enumerate(pieces):
            self.requests[-1][0].append(piece)
            yield Chunk(n, np.full(10, n, np.float32), 10 * n, 0, False)
        yield Chunk(n + 1, np.full(5, 9, np.float32), 10 * n + 10, 0, True)


def test_clauses_are_spoken_one_after_the_other_as_one_stream():
    text, engine = new_text("zh"), ByClause()
    stream, chunks = TextSourceStream(engine, REQUEST, PROMPT, text, 1), []
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
    assert engine.closed == 3 and engine.requests == [
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
    text, engine = reads(), Reading()
    text.push("甲乙丙，" + "字" * 30 + "，" + "字" * 28 + "。" + "乙" * 30 + "，" + "丙" * 9 + "。")
    text.flush()
    text.push("And. Now")
    text.end()
    stream, chunks = TextSourceStream(engine, REQUEST, PROMPT, text, None), []
    while not chunks or not chunks[-1].last:
        chunks.append(next(stream))
    assert [pieces for pieces, _, _ in engine.requests] == [
        ["甲乙丙，", "字" * 30 + "，", "字" * 28 + "。"],
        ["乙" * 30 + "，", "丙" * 9 + "。"],
        ["And. Now."],
    ]
    assert [seed for _, seed, _ in engine.requests] == [
        REQUEST.seed,
        *(part_seed(REQUEST.seed, n) for n in (3, 5)),
    ]
    assert sorted({c.segment for c in chunks}) == [0, 3, 5]
    assert text.settled(REQUEST).segments == tuple(
        "".join(pieces) for pieces, _, _ in engine.requests
    ), "what was spoken in one go"


@pytest.mark.parametrize("rest", ["好。", "字" * 18 + "。"])
@pytest.mark.parametrize("size", [1, 7, 500])
def test_a_short_rest_is_spoken_with_what_was_before_it(rest, size):
    whole = "字" * 40 + "。" + "字" * 37 + "。" + rest
    text, engine = reads(), Reading()
    for at in range(0, len(whole), size):
        text.push(whole[at : at + size])
    text.end()
    stream = TextSourceStream(engine, REQUEST, PROMPT, text, None)
    while not next(stream).last:
        pass
    assert ["".join(pieces) for pieces, _, _ in engine.requests] == [whole]


def test_what_may_begin_another_run_waits_until_that_is_known():
    text, results, done = reads(), [], threading.Event()
    run = text.run()

    def read():
        results.append(next(run, "over"))
        done.set()

    text.push("字" * 30 + "，" + "字" * 40 + "。" + "字" * 13 + "，")
    assert [next(run), next(run)] == text.pieces[:2] and len(text.pieces) == 3
    threading.Thread(target=read, daemon=True).start()
    while not text.is_starved and not results:
        done.wait(0.001)
    assert results == [], "too much for this run, and too little for one of its own"
    text.push("字" * 20 + "。")
    assert done.wait(5) and results == ["over"] and text.next == 2


def test_an_engine_that_cannot_read_gets_whole_segments_none_too_short():
    text, engine = new_text(normalise=lambda clause, own: [clause], rule=RULE), ByClause()
    piece_counts = []
    for delta in (
        "你好，",
        "今天天气真好，我们去公园走一走，",
        "看一看花。",
        "好。",
        "然后我们一起回家去做饭。",
        "走吧",
    ):
        text.push(delta)
        piece_counts.append(len(text.pieces))
    text.end()
    assert text.pieces == [
        "你好，今天天气真好，我们去公园走一走，看一看花。",
        "好。然后我们一起回家去做饭。走吧。",
    ] and piece_counts == [0, 0, 0, 0, 1, 1]
    stream = TextSourceStream(engine, REQUEST, PROMPT, text, 0)
    while not next(stream).last:
        pass
    assert [segments for segments, _, _ in engine.requests] == [(p,) for p in text.pieces]
    assert text.settled(REQUEST).segments == tuple(text.pieces)


def test_marks_are_no_part_of_an_arriving_text_and_a_leading_one_is_its_language():
    for whole, expected in (
        ("<|yue|>今日天气好好，<|im_end|>去饮茶啦。", ["yue:今日天气好好，", "yue:去饮茶啦。"]),
        (
            "You are a helpful assistant. <|endofprompt|>早安。<endofprompt>走",
            ["auto:早安。", "auto:走"],
        ),
        (
            "You are a helpful assistant. Thanks",
            ["auto:You are a helpful assistant. Thanks"],
        ),
    ):
        for size in (1, 3, 500):
            text = new_text()
            for at in range(0, len(whole), size):
                text.push(whole[at : at + size])
            text.end()
            assert text.pieces == expected and text.text == whole, size
            assert text.language == expected[0].partition(":")[0]


def test_blanks_stand_between_words_and_nowhere_else():
    text, engine = reads(), Reading()
    text.push("Hello there, this is good. 很好的事情。Yes it is. ")
    text.end()
    stream = TextSourceStream(engine, REQUEST, PROMPT, text, None)
    while not next(stream).last:
        pass
    assert "".join(engine.requests[0][0]) == "Hello there, this is good.很好的事情。Yes it is."


def test_who_reads_waits_for_the_writer_and_is_let_go():
    text = new_text(normalise=lambda clause, own: [clause])
    results, done = [], threading.Event()

    def read():
        results.extend(text.run())
        done.set()

    text.push("好。")
    threading.Thread(target=read, daemon=True).start()
    while not text.is_starved:
        done.wait(0.001)
    assert results == ["好。"] and not done.is_set()
    text.close()
    assert done.wait(5) and not text.is_starved and text.fed_s > 0


def test_half_a_character_waits_for_the_other_half():
    text = new_text()
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
    text = new_text()
    for _ in range(4):
        text.push("字" * 1024)
    with pytest.raises(BadInput) as error:
        text.push("字")
    assert error.value.code == "too_long_text" and len(text.text) == 4096
    text.push("")
    text.end()


def test_figures_alone_go_with_the_text_around_them():
    text = new_text()
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
    news, text = [], new_text()
    text.listen(news.append)
    text.push("你")
    assert news == []
    text.push("好，")
    text.push("今天天气真好。")
    assert news == [True, False]
    text.flush()
    text.end()
    text.close()
    assert news == [True, False, False, False]


def test_a_stream_that_breaks_off_is_a_fault_not_an_end():
    class Broken(ByClause):
        def stream(self, request, prompt, lane):
            yield Chunk(0, np.ones(4, np.float32), 0, 0, False)

    text = new_text()
    text.push("好。")
    stream = TextSourceStream(Broken(), REQUEST, PROMPT, text, 0)
    next(stream)
    with pytest.raises(EngineFault):
        next(stream)


def test_the_marks_of_a_text_that_arrived_name_the_segments_of_the_whole():
    text, engine = reads(), Reading()
    text.push("一。" * 70 + "二。" * 5)
    text.flush()
    text.push("三。四。")
    text.end()
    stream, starts = TextSourceStream(engine, REQUEST, PROMPT, text, None), {}
    while not (chunk := next(stream)).last:
        starts.setdefault(chunk.segment, chunk.start)
    segments = text.settled(REQUEST).segments
    assert [text.segment_of(piece) for piece in starts] == list(range(len(segments)))
    assert len(segments) > 1 and max(starts) > len(segments), "pieces and segments differ"
    by_clause = new_text()
    by_clause.push("One. Two. ")
    assert [by_clause.segment_of(n) for n in range(2)] == [0, 1]
