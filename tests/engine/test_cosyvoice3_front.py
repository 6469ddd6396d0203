"""What is fed to the third generation: tokens behind the vocabulary, the prefix once and never
twice, the trained wording of the page's chips.
"""

from __future__ import annotations

import json
import unicodedata
from types import SimpleNamespace

import pytest

from scripts.golden_checks import frontend3 as golden_frontend
from tests.conftest import ROOT
from tests.engine.contract import ask
from tests.engine.cosyvoice3_small import GOLDEN
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice.frontend.instruction_formats import (
    DIALECTS,
    RECIPES,
    STYLES,
    cautions,
    trained,
)
from webui.engine.cosyvoice.frontend.prompt_builder_v3 import PromptBuilderV3
from webui.engine.cosyvoice.frontend.tokenizer import END_OF_PROMPT
from webui.engine.cosyvoice.frontend.tokenizer_v3 import (
    READINGS,
    TAGS,
    TOKENS,
    TokenizerV3,
    instruction_prompt,
)
from webui.text import PREFIX

MARK = PREFIX + END_OF_PROMPT


@pytest.fixture(scope="module")
def tokenizer(small_model):
    return TokenizerV3(small_model)


def test_golden():
    assert exceeded(golden_frontend.check, GOLDEN / "frontend") == []


@pytest.mark.shared
def test_golden_whole(shared_dir):
    assert exceeded(golden_frontend.check, shared_dir / "golden3" / "frontend") == []


def test_every_token_is_one_id_behind_the_vocabulary(tokenizer):
    assert len(TOKENS) == 281 and len(READINGS) == 84 + 176
    assert [tokenizer.encode(name) for name in TOKENS] == [[tokenizer.base + i] for i in range(281)]
    assert tokenizer.size == tokenizer.base + 281


def test_a_reading_is_one_id_however_its_accent_is_written(tokenizer):
    text = "小明还[h][uán]钱了"
    ids = tokenizer.typed(text)
    assert [tokenizer.specials["[h]"], tokenizer.specials["[uán]"]] == [
        i for i in ids if i >= tokenizer.base
    ]
    assert (
        tokenizer.typed(unicodedata.normalize("NFD", text))
        == ids
        == tokenizer.arriving(unicodedata.normalize("NFD", text))
    )


def test_tags_and_readings_are_known_and_others_are_told(tokenizer):
    assert tokenizer.unknown("[laughter]小明还[h][uán]钱 [R][EH1][D] [wheeze]") == [
        "[wheeze]"
    ] and set(READINGS) < set(TAGS)
    assert tokenizer.unknown(
        unicodedata.normalize("NFD", "[h][uán]") + "[úan][EH9][Q] [1] [WHO]"
    ) == ["[úan]", "[EH9]", "[Q]"]


@pytest.mark.parametrize(
    "typed",
    [
        "早安。",
        MARK + "早安。",
        f" {PREFIX} {END_OF_PROMPT}早安。",
        END_OF_PROMPT + "早安。",
        "<|endofsystem|>早<|im_end|>安。",
        f"{PREFIX} 请用广东话表达。{END_OF_PROMPT}早安。",
        f"{PREFIX}<endofprompt>早<|zh|>安。",
        "早<|endof<|x|>prompt|>安。",
    ],
)
def test_the_prefix_is_ours_alone(tokenizer, typed):
    assert tokenizer.decode(tokenizer.typed(typed)) == "早安。"


def test_what_only_looks_like_a_prefix_is_said(tokenizer):
    for typed, expected in (
        (f"{PREFIX} Thanks!",) * 2,
        (f"Hello{END_OF_PROMPT}there", "Hellothere"),
    ):
        assert tokenizer.decode(tokenizer.typed(typed)) == expected


@pytest.mark.parametrize(
    "instruction",
    [
        "说快一点。",
        " 说快一点。 ",
        f"{PREFIX} 说快一点。{END_OF_PROMPT}",
        f"说快一点。{END_OF_PROMPT}",
        "<|zh|>说快一点。<endofprompt>",
    ],
)
def test_an_instruction_stands_between_prefix_and_mark(instruction):
    assert instruction_prompt(instruction) == f"{PREFIX} 说快一点。{END_OF_PROMPT}"


def script_of(tokenizer, transcript_ids=(), speech=tuple(range(40)), **fields) -> PromptBuilderV3:
    model = SimpleNamespace(tokenizer=tokenizer, spec=SimpleNamespace(ids_per_s=25))
    return PromptBuilderV3(
        model,
        SimpleNamespace(prompt=SimpleNamespace(speech_ids=speech, text_ids=transcript_ids)),
        ask(**fields),
    )


def prompt_text(tokenizer, script: PromptBuilderV3) -> str:
    return tokenizer.decode(list(script.prompt_text))


def test_what_each_mode_feeds(tokenizer):
    cloned = script_of(tokenizer, mode="zero_shot", transcript="hello there")
    assert prompt_text(tokenizer, cloned) == MARK + "hello there" and cloned.prompt_speech == tuple(
        range(40)
    )
    assert (
        prompt_text(
            tokenizer, script_of(tokenizer, mode="zero_shot", transcript=MARK + "hello there")
        )
        == MARK + "hello there"
    )
    for other in (
        {"mode": "cross_lingual"},
        {"mode": "preset"},
        {"mode": "instruct", "instruction": " "},
        {"mode": "zero_shot"},
    ):
        script = script_of(tokenizer, **other)
        assert prompt_text(tokenizer, script) == MARK and script.prompt_speech == ()
    zero_shot = script_of(
        tokenizer, mode="zero_shot", instruction="Speak happily", transcript="hello there"
    )
    assert (
        prompt_text(tokenizer, zero_shot)
        == f"{PREFIX} 请非常开心地说一句话。{END_OF_PROMPT}hello there"
        and zero_shot.prompt_speech == tuple(range(40))
    )
    assert (
        prompt_text(
            tokenizer, script_of(tokenizer, mode="cross_lingual", instruction="Speak happily")
        )
        == MARK
    )
    builder = script_of(
        tokenizer,
        mode="instruct",
        instruction="Speak in Sichuan dialect, happily",
        transcript="hello",
    )
    assert (
        prompt_text(tokenizer, builder)
        == f"{PREFIX} 请用四川话表达。请非常开心地说一句话。{END_OF_PROMPT}"
        and builder.prompt_speech == ()
    )


def test_of_the_prompt_only_what_stands_before_the_mark_is_read_at_once(tokenizer):
    script = script_of(tokenizer, mode="zero_shot", transcript="hello there")
    builder = script_of(tokenizer, mode="zero_shot", transcript="hello there", instruction="slowly")
    assert tokenizer.decode(list(builder.head())) == f"{PREFIX} slowly{END_OF_PROMPT}"
    assert tokenizer.decode(list(script.head())) == MARK and script.prompt_text[
        len(script.head()) :
    ] == tuple(tokenizer.typed("hello there"))


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_chips_of_the_page_become_what_the_model_was_trained_with(lang):
    words = json.loads((ROOT / "assets" / "lang" / f"{lang}.json").read_text("utf-8"))
    assert len(STYLES) == 26 and len(DIALECTS) == 17
    chips = {
        key: (
            words["i.dialect"].format(d=words["d." + key]) if key in DIALECTS else words["i." + key]
        )
        for key in STYLES
    }
    for key, chip in chips.items():
        assert trained(words["i.say"].format(w=chip)) == RECIPES[key].trained, key
    instruction = ("、" if lang == "zh" else ", ").join((chips["yue"], chips["sad"], chips["slow"]))
    assert (
        trained(words["i.say"].format(w=instruction))
        == "请用广东话表达。请非常伤心地说一句话。请用尽可能慢地语速说一句话。"
    )


@pytest.mark.parametrize(("text", "language", "expected"),
    [("今日は良い天気です。", "auto", True), ("今天天气好。", "ja", True),
        ("キョウ ワ ハレ", "ja", False),
                                                         ("今天天气好。", "auto", False),
                                                         ("Hello.", "en", False)])  # fmt: skip
def test_kanji_that_would_be_read_as_chinese_are_told(text, language, expected):
    notes = cautions(ask(text=text, language=language))
    assert bool(notes) is expected and all(
        en.endswith(".") and zh.endswith("。") for en, zh in notes
    )


@pytest.mark.parametrize(
    "own",
    [
        "像在哄孩子一样说这句话",
        "Speak like a pirate",
        "用四川话、像海盗一样说这句话",
        "请用四川话表达。",
        "说这句话",
        "",
    ],
)
def test_own_words_stay(own):
    assert trained(own) == own
