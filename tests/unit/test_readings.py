"""A project's own pronunciations: what counts as a whole term, in one pass, within bounds; and that
a text is normalised once.
"""

import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webui.errors import BadInput
from webui.text import MAX_READING, MAX_TERM, NO_READINGS, Readings, check, detect, prepare
from webui.text.pronunciation_dict import MAX_SAID, fold

preparing = importlib.import_module("webui.text.pipeline")


def readings(*entries) -> Readings:
    return Readings(check(*e) for e in entries)


GPU, CHONGQING = ("GPU", "G P U"), ("重庆", "崇庆")


@pytest.mark.parametrize(
    ("entries", "text", "expected"),
    [
        ([GPU], "The GPU is hot.", "The G P U is hot."),
        ([GPU], "gpu, Gpu; GPU!", "G P U, G P U; G P U!"),
        ([GPU], "GPUs, eGPU, GPU4, my_GPU and gpué stay", "GPUs, eGPU, GPU4, my_GPU and gpué stay"),
        ([GPU], "我的GPU很快，ＧＰＵ更快", "我的G P U很快，G P U更快"),
        ([GPU], "the GPU's fan", "the G P U's fan"),
        ([("can", "kan")], "can can't cannot", "kan can't cannot"),
        ([("neil", "nile")], "Neil O'Neil", "nile O'Neil"),
        ([CHONGQING], "他在重庆市", "他在崇庆市"),
        ([("서울", "써울")], "서울은", "써울은"),
        ([("行", "航"), ("银行", "银杭")], "银行里行走", "银杭里航走"),
        ([("New York", "noo yok"), ("York", "yawk")], "New York and York", "noo yok and yawk"),
        ([("GPT", "jay"), ("GPT-4", "gee four")], "GPT-4 and GPT", "gee four and jay"),
        ([("a", "b"), ("b", "a")], "a b", "b a"),
        ([("北京", "背景"), ("背景", "前景")], "北京的背景", "背景的前景"),
        ([("C++", "C plus plus")], "C++ and c++11", "C plus plus and C plus plus 11"),
        ([("3", "drei")], "3 but 3.5, 13, 1,3 and 3rd", "drei but 3.5, 13, 1,3 and 3rd"),
        ([("3", "三")], "第3章", "第三章"),
        ([("😀", "笑脸")], "你好😀", "你好笑脸"),
        ([("laughter", "LOL"), ("strong", "S")], "[laughter] laughter <strong>strong</strong>",
            "[laughter] LOL <strong>S</strong>"),
        ([GPU], "[gpu] [breath]GPU[breath]", "[gpu] [breath]G P U[breath]"),
        ([("a.c", "dot"), ("(x", "paren"), ("\\d", "digit"), ("$^", "ends")], "abc a.c (x \\d 5 $^",
            "abc dot paren digit 5 ends"),
        ([("café", "kaffay")], "cafe\u0301 CAFÉ cafe", "kaffay kaffay cafe"),
        ([("שלום", "shalom")], "\u200fשלום\u200f", "\u200fshalom\u200f"),
        ([GPU], "", ""),
    ],
)  # fmt: skip
def test_whole_terms_give_way_longest_first_and_once(entries, text, expected):
    assert readings(*entries).apply(text, detect(text)) == expected


def test_an_entry_of_a_language_holds_there_and_wins_there():
    r = readings(("GPU", "all"), ("gpu", "中文", "zh"), ("CPU", "english", "en-US"))
    assert [r.apply("GPU CPU", tag) for tag in ("zh", "en", "ja")] == [
        "中文 CPU",
        "all english",
        "all CPU",
    ]


def test_readings_come_before_normalisation():
    r = readings(("Q3", "third quarter"), ("iOS 18", "i O S 18"))
    assert prepare("In Q3 we ship iOS 18.", "en", r) == ["In third quarter we ship i O S eighteen."]


def test_a_sentence_that_ended_with_the_term_ends_with_its_reading():
    r = readings(GPU, ("J", "Jay R"))
    assert prepare("I have one GPU. It hums. The GPU.", "en", r) == [
        "I have one G P U.",
        "It hums.",
        "The G P U.",
    ]
    assert prepare("Ask J. Tolkien. See GPU. v2", "en", r) == [
        "Ask Jay R. Tolkien.",
        "See G P U. v two",
    ]


@pytest.mark.parametrize(
    ("term", "reading", "language", "code"),
    [
        ("", "x", "", "bad_term"), (" \u200b\u202e ", "x", "", "bad_term"),
        ("a\x00b", "x", "", "bad_term"), ("a\x1b[31m", "x", "", "bad_term"),
            ("\ud800", "x", "", "bad_term"),
        ("[laughter]", "x", "", "bad_term"), ("<|zh|>", "x", "", "bad_term"),
        ("say [Breath] now", "x", "", "bad_term"), ("x" * (MAX_TERM + 1), "x", "", "too_long_term"),
        ("x" * (1 << 20), "x", "", "too_long_term"), ("x", "y" * (1 << 20), "", "too_long_reading"),
        ("x", "y" * (MAX_READING + 1), "", "too_long_reading"), ("x", "", "", "bad_reading"),
        ("x", "😀", "", "bad_reading"), ("x", "a\x07", "", "bad_reading"),
        ("x", "[breath] a", "", "bad_reading"), ("x", "<|endofprompt|> a", "", "bad_reading"),
        ("x", "y", "english", "bad_language"),
        ("x", "y", "../..", "bad_language"), ("x", "y", "z" * 999, "bad_language"),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused_by_name_in_both_languages(term, reading, language, code):
    with pytest.raises(BadInput) as refused:
        check(term, reading, language)
    assert (
        refused.value.code == code
        and refused.value.en.isascii()
        and any("\u4e00" <= c <= "\u9fff" for c in refused.value.zh)
    )


def test_layout_marks_and_blanks_do_not_make_another_term():
    assert check("  New\t \u200bYork\u202e\n", " a\u3000 b ").term == "New York"
    assert check("GPU", "a").key == check("ｇｐｕ", "a").key == fold("Gpu")


@given(
    st.lists(st.tuples(st.text(max_size=12), st.text(max_size=20)), max_size=12),
    st.text(max_size=300),
)
@settings(max_examples=150, deadline=None)
def test_any_dictionary_and_any_text(entries, text):
    def checked():
        for term, reading in entries:
            try:
                yield check(term, reading)
            except BadInput:
                continue

    r = Readings({e.key: e for e in checked()}.values())
    first_pass = r.apply(text, "en")
    assert r.apply(text, "en") == first_pass
    if not r.entries:
        assert first_pass == text
    prepare(text, "auto", r)


def test_a_dictionary_cannot_make_a_book_of_a_text():
    for n in (60, 4096):
        with pytest.raises(BadInput) as refused:
            readings(("啊", "长" * MAX_READING)).apply("啊" * n, "zh")
        assert refused.value.code == "too_long_text"
    assert len(readings(("啊", "呀")).apply("啊" * 4096, "zh")) == 4096 < MAX_SAID


def test_work_grows_with_the_text_not_with_the_dictionary():
    """Looked up by its first character: terms that cannot begin here cost nothing.

    At worst one look for each length of a term.
    """
    many = Readings(check(f"term{chr(0x4E00 + n)}x", "y") for n in range(1000))
    looks = 0

    class Counting(dict):
        def __contains__(self, key):
            nonlocal looks
            looks += 1
            return super().__contains__(key)

    many.apply("", "zh")
    for t in many._tables.values():
        t.readings = Counting(t.readings)
    many.apply("天地玄黄" * 1000, "zh")
    assert looks == 0
    worst = Readings(check("啊" * n + "x", "y") for n in range(1, MAX_TERM))
    worst.apply("", "zh")
    for t in worst._tables.values():
        t.readings = Counting(t.readings)
    worst.apply("啊" * 4000, "zh")
    assert looks <= 4000 * MAX_TERM


def test_the_revision_names_the_content():
    first, second = readings(GPU, CHONGQING), readings(CHONGQING, GPU)
    assert (
        first.revision == second.revision != readings(GPU).revision and NO_READINGS.revision == ""
    )
    assert readings(("ab", "c")).revision != readings(("a", "bc")).revision


# ---- normalised once -----------------------------------------------------------------------------
@pytest.fixture
def calls(monkeypatch):
    """How often a sentence was normalised, with nothing kept from before."""
    sentences, real = [], preparing.normalise
    preparing._prepare_cached.cache_clear()
    monkeypatch.setattr(
        preparing,
        "normalise",
        lambda sentence, language: (sentences.append(sentence), real(sentence, language))[1],
    )
    return sentences


def test_a_text_is_normalised_once(calls):
    r = readings(GPU)
    first = prepare("One GPU. Two.", "en", r)
    n = len(calls)
    assert n == 2 and prepare("One GPU. Two.", "en", readings(GPU)) == first and len(calls) == n, (
        "an equal dictionary is the same dictionary"
    )
    for other in (
        ("One GPU. Two.", "zh", r),
        ("One GPU. Two!", "en", r),
        ("One GPU. Two.", "en", readings(("GPU", "jee"))),
        ("One GPU. Two.", "en", NO_READINGS),
    ):
        before = len(calls)
        prepare(*other)
        assert len(calls) == before + 2, other
    first.append("mine")
    assert prepare("One GPU. Two.", "en", r) == first[:-1], "what is kept is nobody's to change"


def test_a_refusal_is_not_kept(calls):
    r = readings(("啊", "长" * MAX_READING))
    for _ in range(2):
        with pytest.raises(BadInput):
            prepare("啊" * 4000, "zh", r)
    assert preparing._prepare_cached.cache_info().currsize == 0


def test_what_is_kept_is_bounded_by_entries_and_by_characters(calls):
    info = preparing._prepare_cached.cache_info
    for n in range(preparing.MAX_KEPT + 50):
        prepare(f"a {n}", "en")
    assert info().currsize <= info().maxsize == preparing.MAX_KEPT_CHARS
    n = len(calls)
    prepare(f"a {preparing.MAX_KEPT + 49}", "en")
    assert len(calls) == n, "the last one is there"
    prepare("a 0", "en")
    assert len(calls) == n + 1, "the first one went"
    for letter in "abcd":
        prepare(f"{letter} " * 150_000, "en")
    assert info().currsize <= info().maxsize
