"""How sentences are packed into the segments that a model speaks in one go, and what becomes of
marks in pasted examples.
"""

from __future__ import annotations

import random

import pytest

from scripts import show_segments
from scripts.published.text_front import split_paragraph
from scripts.show_segments import RULE, TEXTS, n_marks, n_short
from webui import text
from webui.text import Packer, close, prepare, units
from webui.types import Abilities

STOPS = tuple("。！？；：…!?.;:")


def test_of_forty_texts_no_segment_is_too_short_and_no_mark_is_spoken(capsys):
    show_segments.main([])
    table = show_segments.rows()
    assert [len(texts) for texts in TEXTS.values()] == [10] * 4 and len(table) == 40
    for group, _, before, after, public in table:
        assert after and n_short(after) == 0 and n_marks(after) == n_marks(before) == 0, after
        assert all(close(s) == s or s.endswith(("，", ",")) for s in after), after
        assert after[-1].rstrip('”"').endswith(STOPS) or after[-1].endswith("]"), after
        if group == "short":
            assert len(after) == 1, "one call of the language model, one mood"
        assert len(after) <= len(before) and abs(len(after) - len(public)) <= 1
    output = capsys.readouterr().out
    assert "CosyVoice: 45 segments, 0 under the minimum, 0 with a mark read aloud" in output


def test_the_first_segment_is_not_cut_short_where_the_engine_says_so():
    source_text = "今天天气真不错，我们一起去公园散步吧，顺便买两杯咖啡，再看一会儿书。然后回家。"
    assert prepare(source_text)[0] == "今天天气真不错，", "the built-in voice sounds early"
    assert prepare(source_text, rule=RULE) == [source_text]
    assert Abilities("e", "1", 24000, (), ()).segmentation is None


@pytest.mark.parametrize("seed", range(20))
def test_whole_sentences_are_packed_as_the_public_front_end_packs_them(seed):
    chance = random.Random(seed)
    sentences = ["字" * chance.randint(1, 70) + "。" for _ in range(chance.randint(1, 25))]
    public = split_paragraph("".join(sentences), len, "zh", 80, 60, 20, False)
    assert text.pack(sentences, RULE) == public


def test_a_long_sentence_is_cut_where_the_public_one_is_not():
    for source_text in ("字" * 500, "很长的话，" * 100, "word " * 400, "a" * 2000):
        cut = prepare(source_text, rule=RULE)
        assert max(units(s, RULE) for s in cut) <= RULE.min_units + RULE.max_units + 1
        assert min(units(s, RULE) for s in cut) >= RULE.merge_units
        letters = "".join(c for s in cut for c in s if c.isalnum())
        assert letters == "".join(c for c in source_text if c.isalnum()), "no letter is lost"


def test_what_is_certain_of_a_text_that_arrives_stays_so():
    for seed in range(50):
        chance = random.Random(seed)
        pieces = [("字" * chance.randint(1, 40), chance.random() < 0.5) for _ in range(40)]
        packer, certain_ends = Packer(RULE), []
        for n, piece in enumerate(pieces, 1):
            packer.add(*piece)
            assert packer.ends[: len(certain_ends)] == certain_ends and packer.n_certain <= n
            assert all(end <= packer.n_certain for end in packer.ends)
            certain_ends = list(packer.ends)
        packer.end()
        packer.end()
        assert packer.ends[: len(certain_ends)] == certain_ends and packer.ends[-1] == 40
        lengths = [
            sum(len(piece) for piece, _ in pieces[a:b])
            for a, b in zip([0, *packer.ends], packer.ends, strict=False)
        ]
        assert min(lengths) >= RULE.merge_units


@pytest.mark.parametrize(
    ("source_text", "closed"),
    [
        ("你好", "你好。"), ("你好，", "你好。"), ("Hello", "Hello."), ("Hello,", "Hello."),
        ("你好！", "你好！"), ("他说“你好。”", "他说“你好。”"),
        ("好[laughter]", "好[laughter]。"), ("好。[laughter]", "好。[laughter]"),
        ("用 iPhone", "用 iPhone."), ("第<strong>一</strong>", "第<strong>一</strong>。"),
        ("等等……", "等等……"), ("[breath]", "[breath]"), ("(yes)", "(yes)."),
    ],
)  # fmt: skip
def test_a_segment_ends_in_a_stop(source_text, closed):
    assert close(source_text) == closed


@pytest.mark.parametrize("rule", [None, RULE])
@pytest.mark.parametrize("mark", ["<|endofprompt|>", "<endofprompt>", "<|zh|>", "<| en |>",
    "＜｜en｜＞", "<|im_end|>", "<|0.00|>", "<|e<|x|>n|>"])  # fmt: skip
def test_nothing_of_a_mark_is_spoken_wherever_it_stands(mark, rule):
    plain = prepare("早安。今天好吗", rule=rule)
    for source_text in (f"{mark}早安。今天好吗", f"早安。{mark}今天好吗", f"早安。今天好吗{mark}",
        f"早{mark}安。今天{mark}好吗{mark}"):  # fmt: skip
        assert prepare(source_text, rule=rule) == plain, source_text
    assert prepare(mark, rule=rule) == []


@pytest.mark.parametrize(
    ("source_text", "language"),
    [
        ("<|zh|>你好", "zh"), (" <|EN|>Hi", "en"), ("<|jp|>はい", "ja"), ("<|yue|>早晨", "yue"),
        ("<| ko |>네", "ko"), ("<|xx|>a", ""), ("<|endofprompt|>a", ""),
        ("a<|en|>", ""), ("<|fr|>oui", "fr"), ("", ""),
    ],
)  # fmt: skip
def test_a_leading_mark_is_a_language_where_it_names_one(source_text, language):
    assert text.marked_language(source_text) == language


def test_the_prefix_of_a_pasted_example_goes_with_its_mark_and_not_without():
    prefix = text.PREFIX
    for head in (f"{prefix}<|endofprompt|>", f" {prefix} <endofprompt>",
        f"{prefix} 请说快点。<|endofprompt|>"):  # fmt: skip
        assert prepare(f"{head}早安。") == ["早安。"], head
    assert prepare(f"{prefix} Thanks.")[0] == prefix
    readings = text.Readings((text.Pronunciation("assistant", "helper", "", "assistant"),))
    assert prepare(f"{prefix}<|endofprompt|>早安。", "auto", readings) == ["早安。"]


def test_readings_and_tags_that_an_engine_does_not_know_are_not_spoken():
    source_text = "还[h][uán]好[laughter]，read[R][EH1][D]吧[ǎi]。[注意] [a] [see]"
    assert text.strip_tags(source_text, ()) == "还 好 ，read 吧 。[注意] [a] [see]"
    known_tags = ("[h]", "[uán]", "[R]", "[EH1]", "[D]", "[ǎi]", "[laughter]")
    assert text.strip_tags(source_text, known_tags) == source_text
