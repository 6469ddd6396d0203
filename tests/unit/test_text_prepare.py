"""Language by script, cleaning, sentences and their lengths, event tags."""

import json
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webui import text
from webui.text import detect, duration, measure, prepare, strip_tags, suggest, unknown_tags
from webui.text.sentences import MAX_WEIGHT, split, weight
from webui.types import Segmentation


@pytest.mark.parametrize(
    ("source_text", "tag"),
    [
        ("你好，世界", "zh"), ("Hello world", "en"), ("こんにちは世界", "ja"),
        ("東京都知事選挙の結果について", "ja"), ("美の物語", "zh"), ("안녕하세요", "ko"),
        ("Привет, мир", "ru"), ("สวัสดี", "th"), ("我喜欢 Python", "zh"),
        ("I love the food of 北京", "en"), ("", "en"), ("123", "en"), ("😀", "en"), ("Señor", "en"),
        ("中国和俄罗斯 Москва", "zh"),
    ],
)  # fmt: skip
def test_language_by_script(source_text, tag):
    assert detect(source_text) == tag


@pytest.mark.parametrize(
    ("source_text", "pieces"),
    [
        ("你好啊。我走了！真的吗？", ["你好啊。", "我走了！", "真的吗？"]),
        ("他说：“你好啊。”然后走了。", ["他说：“你好啊。”", "然后走了。"]),
        ("（他笑了。）我也笑了。", ["（他笑了。）", "我也笑了。"]),
        ("圆周率是3.14。对吧？", ["圆周率是3.14。", "对吧？"]),
        ("真的吗？！当然是真的。", ["真的吗？！", "当然是真的。"]),
        ("我想……我还是不去了。", ["我想……", "我还是不去了。"]),
        ("第一行\n第二行", ["第一行", "第二行"]),
        ("我来了；你走了。", ["我来了；", "你走了。"]),
        ("Mr. Smith met Dr. Jones. They talked.", ["Mr. Smith met Dr. Jones.", "They talked."]),
        ("It was at 3 p.m. on Monday. Good.", ["It was at 3 p.m. on Monday.", "Good."]),
        ("Use fruit, e.g. apples. Or not.", ["Use fruit, e.g. apples.", "Or not."]),
        ("He lives in the U.S. He likes it.", ["He lives in the U.S.", "He likes it."]),
        ("The U.S. Navy came. Then left.", ["The U.S. Navy came.", "Then left."]),
        ("J. R. Tolkien wrote it. I read it.", ["J. R. Tolkien wrote it.", "I read it."]),
        ("Well... maybe later. Yes.", ["Well... maybe later.", "Yes."]),
        ("Wait... What?", ["Wait...", "What?"]),
        ('"Really?" she said. "Yes!"', ['"Really?"', "she said.", '"Yes!"']),
        ("Go to http://a.com/?q=1 now. Thanks.", ["Go to http://a.com/?q=1 now.", "Thanks."]),
        ("1. Apples. 2. Pears.", ["1. Apples.", "2. Pears."]),
        ("It costs 3.50 dollars.好的。", ["It costs 3.50 dollars.", "好的。"]),
        ("Yahoo!我们走。", ["Yahoo!", "我们走。"]),
    ],
)
def test_sentences(source_text, pieces):
    assert split(source_text) == pieces


def test_the_first_piece_is_short_and_the_rest_is_not():
    pieces = prepare(
        "今天天气真不错，我们一起去公园散步吧，顺便买两杯咖啡，再看一会儿书。然后回家。"
    )
    assert pieces == [
        "今天天气真不错，",
        "我们一起去公园散步吧，顺便买两杯咖啡，再看一会儿书。",
        "然后回家。",
    ]
    assert (
        prepare("After a long and rainy winter, the first warm day felt like a gift to everyone.")[
            0
        ]
        == "After a long and rainy winter,"
    )
    assert prepare("你好，世界。") == ["你好，世界。"]


@pytest.mark.parametrize(
    "source_text",
    [
        "字" * 500,
        "a" * 2000,
        "word " * 400,
        "很长的话，" * 100,
        "ก" * 1000,
        "é" * 900,
        "1" * 400,
        "e\u0301\u0302\u0303" * 300,
    ],
)
def test_no_piece_is_too_long_and_no_letter_is_lost(source_text):
    pieces = prepare(source_text)
    assert max(map(weight, pieces)) <= MAX_WEIGHT + 3
    normalised = unicodedata.normalize("NFC", source_text)
    if not source_text.startswith("1"):
        assert "".join(pieces).replace(" ", "") == "".join(normalised.split())
    assert min(map(weight, pieces[1:])) >= MAX_WEIGHT / 5, "no scrap is left at the end"


def test_scraps_go_to_their_neighbour():
    assert prepare("我们今天去公园。好。走。") == ["我们今天去公园。", "好。走。"]
    assert prepare("我们今天去公园。那就这样定了。走。") == [
        "我们今天去公园。",
        "那就这样定了。走。",
    ]
    assert prepare("……你好啊。") == ["……你好啊。"]
    assert prepare("你好啊。\n———\n再见了。") == ["你好啊。———", "再见了。"]


@pytest.mark.parametrize(
    "source_text",
    ["", "   \n", "😀😀🎉", "\u200b\u200d\ufeff", "\x00\x01\x07", "\ud800", "。。。！", "★☆"],
)
def test_nothing_to_say_gives_nothing(source_text):
    assert prepare(source_text) == []
    assert measure(source_text)[1] == 0 and duration(prepare(source_text)) == 0.0


def test_what_cannot_be_said_is_removed():
    assert prepare("你\u200b好😀，\ud83d世\x00界\ufe0f\u202e。") == ["你好 ，世 界。"]
    assert prepare("1️⃣ 苹果") == ["一 苹果"]
    assert prepare("ｈｅｌｌｏ　ｗｏｒｌｄ") == ["hello world"]
    assert "<|" not in "".join(prepare("你好<|endofprompt|>再见"))


def test_sentences_of_a_mixed_text_are_read_each_in_its_language():
    assert prepare("我有3只猫。I have 3 cats. 3.14。") == [
        "我有三只猫。",
        "I have three cats.",
        "三点一四。",
    ]
    assert prepare("我有3只猫", "en") == ["我有三只猫"]
    assert prepare("価格は100円です") == ["価格は100円です"]
    assert prepare("我有2只猫", "yue") == ["我有两只猫"]


def test_event_tags_survive_and_unknown_ones_are_named():
    known_tags = ("[laughter]", "[breath]", "<strong>", "</strong>")
    assert prepare("[laughter]你好<strong>50%</strong>吧") == [
        "[laughter]你好<strong>百分之五十</strong>吧"
    ]
    assert unknown_tags("[laughter] a [laugter] b [breath] [laugter] <b>", known_tags) == [
        "[laugter]",
        "<b>",
    ]
    assert suggest("[laugter]", known_tags) == "[laughter]"
    assert suggest("[zzz]", known_tags) is None
    assert strip_tags("你好[laughter]吧[注意]", ()) == "你好 吧[注意]"
    assert strip_tags("你好[laughter]吧", known_tags) == "你好[laughter]吧"


def test_measure_counts_what_was_typed():
    assert measure("你好。世界 。") == (7, 2)
    assert measure("<|zh|>你好。[laughter]") == (3, 1)
    assert measure("Dr. Smith paid $1,234.56 to https://example.com/a?b=1 now!")[1] == 1


def test_the_duration_is_of_what_is_said():
    assert 1.5 < duration(["今天天气真不错呀"]) < 2.5
    assert 2.0 < duration(["The first warm day felt like a gift."]) < 3.5
    assert duration(prepare("$1,234.56")) > 3 * duration(["$1,234.56"])
    halves = ["The first warm day felt like a gift.", "It was a gift to everyone."]
    assert abs(duration(halves) - duration([" ".join(halves)])) < 0.1, "however it is cut"


WORDS = ["猫", "天气", "hello", "Kaikou", "开口", "speak", "мир", "ひと", "사람"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(WORDS),
            st.sampled_from(
                [
                    " ",
                    "，",
                    ", ",
                    "。",
                    ". ",
                    "！",
                    "?",
                    "\n",
                    "…",
                    " (",
                    ") ",
                    "“",
                    "”",
                    "😀",
                    "\u200b",
                    "7",
                    " 42 ",
                    "%",
                    "；",
                ]
            ),
        ),
        max_size=40,
    )
)
@settings(max_examples=150, deadline=None)
def test_every_word_is_said_in_order(parts):
    spoken_text, at = "".join(prepare("".join(word + mark for word, mark in parts))), 0
    for word, _ in parts:
        at = spoken_text.index(word, at) + len(word)


@given(
    st.text(alphabet=st.characters(), max_size=300),
    st.sampled_from(["auto", "zh", "en", "yue", "ja", "xx", ""]),
)
@example("<endofprompt>", "auto")
@settings(max_examples=300, deadline=None)
def test_any_text_gives_whole_pieces(source_text, language):
    pieces = prepare(source_text, language)
    for piece in pieces:
        assert piece == piece.strip() != ""
        assert weight(piece) <= MAX_WEIGHT + 3
        piece.encode()
    if any(
        c.isalpha() and c < "\uffff" and unicodedata.category(c) in ("Ll", "Lu")
        for c in re.sub(r"<[^<>]*>", "", source_text)  # a mark alone says nothing
    ):
        assert pieces
    measure(source_text)


@given(
    st.text(alphabet="0123456789.,-:/%$¥°CFkm年月日点个元 +x=~^第 \n。，aZ", max_size=60),
    st.sampled_from(["zh", "en"]),
)
@settings(max_examples=400, deadline=None)
def test_no_digit_is_left_unread(source_text, language):
    assert not any(c.isdigit() for c in "".join(prepare(source_text, language)))


@given(st.text(alphabet="今天天气好我们走吧abc，。！？ \n“”", max_size=120))
@settings(max_examples=200, deadline=None)
def test_reading_twice_changes_nothing(source_text):
    first_pass = prepare(source_text, "zh")
    assert "".join(prepare("\n".join(first_pass), "zh")).replace(" ", "") == "".join(
        first_pass
    ).replace(" ", "")


@pytest.mark.parametrize(
    ("source_text", "rule", "spans"),
    [
        ("第一句。第二句！第三句？", None, [(1, 1), (2, 2), (3, 3)]),
        (
            "清晨的风从窗口吹进来，很轻很轻。我写下来。你听！",
            None,
            [(1, 1), (1, 1), (2, 2), (3, 3)],
        ),
        ("第一行\n第二行\n第三行", None, [(1, 1), (2, 2), (3, 3)]),
        ("长" * 150 + "。短的一句。", None, [(1, 1), (1, 1), (1, 1), (2, 2)]),
        ("一句短的。" * 40, Segmentation(80, 60, 20), [(1, 16), (17, 32), (33, 40)]),
        ("Dr. Smith paid $3.50. He left!", Segmentation(80, 60, 20), [(1, 2)]),
    ],
)
def test_what_is_spoken_in_one_go_is_counted_in_typed_sentences(source_text, rule, spans):
    segments, (_, n) = prepare(source_text, rule=rule), text.measure(source_text)
    assert text.sentence_spans(segments, n) == spans and spans[-1][1] == n


def test_the_result_is_the_callers_own():
    prepare("你好啊。").append("x")
    assert prepare("你好啊。") == ["你好啊。"]


HOSTILE = [
    "1", "a.", "1,", "1.", "-", "a@", '"', "1/", "a", ".", "<a", "1-", "www.", "1 ", "!a", "电话",
    "\u0301", "A.", "([“", "字", "$1", "http://", "1:", "a/", "^", "[a", "，", "。 ", "a b ", "1e",
        "¥", "+1 ", "0", "'", "Jan 1 ", "x1", "\ud800",
]  # fmt: skip
_COUNTED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from webui.text import measure, prepare, strip_tags, unknown_tags
for unit in json.loads(sys.argv[1]):
    text = (unit * 50_000)[:50_000]
    prepare(text), prepare(text, "zh"), measure(text), strip_tags(text, ()), unknown_tags(text, ())
"""


def test_fifty_thousand_characters_cost_no_quadratic_work():
    """37 texts of one repeated unit within twenty seconds of CPU in all, eight are usual: one
    quadratic rule alone would need more (2.5 * 10**9 steps).
    """
    run = subprocess.run(
        [sys.executable, "-c", _COUNTED, json.dumps(HOSTILE)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-500:]


def test_the_room_has_no_heavy_imports():
    code = (
        "import sys, webui.text; webui.text.warm(); print([m for m in ('torch', 'numpy', 'scipy',"
        " 'wetext', 'modelscope') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    assert text.__all__
