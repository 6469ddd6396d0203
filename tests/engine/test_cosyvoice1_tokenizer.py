"""Text ids of the first generation: golden cases, what a person may type, a vocabulary that is
broken.
"""

from __future__ import annotations

import json

import pytest

from scripts.golden_checks import frontend1 as frontend_check
from tests.conftest import ROOT
from tests.engine.cosyvoice1_small import GOLDEN1
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice.frontend.speaker_descriptions import DESCRIPTIONS, described
from webui.engine.cosyvoice.frontend.whisper_tokenizer import (
    EVENT_TAGS,
    SPECIALS,
    VOCABULARY,
    WhisperTokenizer,
    mark_of,
)
from webui.engine.cosyvoice.model_spec import EXPRESSIONS
from webui.errors import NotReady

GOLDEN_END = [27, 91, 521, 2670, 28722, 662, 91, 29]  # <|endofprompt|> behind a word: ordinary ids


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> WhisperTokenizer:
    return WhisperTokenizer(
        tmp_path_factory.mktemp("published directories have no vocabulary"), EVENT_TAGS
    )


def test_golden_subset():
    assert exceeded(frontend_check.check, GOLDEN1 / "frontend") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(frontend_check.check, shared_dir / "golden1" / "frontend") == []


@pytest.mark.parametrize(
    "text",
    [
        "早安，今天的火车几点开？",
        " Hello  world\n\n it's",
        "naïve café 😀 👩‍👩‍👧",
        "한국어 12345",
        "粵語",
        "\u0000\x7f",
        "a" * 300,
        "ﬁ Å",
        "<laughter>ha</laughter>",
    ],
)
def test_ids_give_the_text_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_no_mark_that_a_person_types_is_fed(tokenizer):
    for mark in ("<|endoftext|>", "<|translate|>", "<|0.00|>", "<|fr|>", "<|endofprompt|>",
        "<|en|>", "<|nothing|>", "<endofprompt>"):  # fmt: skip
        assert tokenizer.typed(f" a{mark}b ") == tokenizer.encode("ab"), "obeyed or read aloud"


def test_a_description_ends_where_it_must(tokenizer, tmp_path):
    ids = tokenizer.encode("A calm voice")
    assert tokenizer.instruction("A calm voice") == tokenizer.encode("A calm voice<endofprompt>")
    for typed in (
        " A calm<|endofprompt|> voice<|endoftext|><|endofprompt|> ",
        "A calm voice<endofprompt>",
        "You are a helpful assistant. A calm voice<|endofprompt|>",
    ):
        assert tokenizer.instruction(typed) == tokenizer.instruction("A calm voice"), typed
    golden = WhisperTokenizer(tmp_path, end_of_prompt="<|endofprompt|>")
    assert golden.instruction("A calm voice") == ids + GOLDEN_END, "today's public code"


def test_what_a_style_chip_wrote_becomes_a_description():
    strings = {
        name: json.loads((ROOT / "assets" / "lang" / f"{name}.json").read_text("utf-8"))
        for name in ("zh", "en")
    }
    assert tuple(DESCRIPTIONS) == EXPRESSIONS
    for style, (zh, en, meaning) in DESCRIPTIONS.items():
        assert (zh, en) == (strings["zh"][f"i.{style}"], strings["en"][f"i.{style}"])
        for name, words in (("zh", zh), ("en", en)):
            wrote = strings[name]["i.say"].replace("{w}", words)
            assert described(wrote) == f"A speaker with {meaning}."
    assert (
        described("开心地、快一点说这句话")
        == f"A speaker with {DESCRIPTIONS['happy'][2]} and {DESCRIPTIONS['fast'][2]}."
    )
    for own in ("Theo is a fiery rebel leader.", "开心地说", "Speak like a pirate", ""):
        assert described(own) == own


def test_what_would_be_read_aloud_is_told(tokenizer, tmp_path):
    assert tokenizer.unknown("[laughter] <strong>so</strong> <|en|> <|sichuan|>") == []
    assert tokenizer.unknown("[giggle] <|sichuan|>") == ["[giggle]"]
    assert "[laughter]" in WhisperTokenizer(tmp_path).unknown("[laughter]"), (
        "only -Instruct has learnt it"
    )


def test_languages_and_their_marks():
    assert [mark_of(language) for language in ("zh", "en", "ja", "yue", "ko")] == [
        "<|zh|>",
        "<|en|>",
        "<|ja|>",
        "<|yue|>",
        "<|ko|>",
    ]
    assert mark_of("ru") == mark_of("auto") == "" and len(SPECIALS) == len(set(SPECIALS)) == 1609


def test_a_directory_may_bring_a_vocabulary(tmp_path):
    import base64

    lines = [f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256)] + [
        f"{base64.b64encode(b'ab').decode()} 256",
        "= 257",
    ]
    (tmp_path / VOCABULARY).write_text("\n".join(lines))
    own = WhisperTokenizer(tmp_path)
    assert own.encode("abc<|endoftext|>") == [256, ord("c"), 258] and own.size == 258 + 1609


@pytest.mark.parametrize(
    "content",
    ["YQ== 0\nYg== 5", "not base64 at all", "YQ== x", "YQ==", ""],
    ids=["gap", "words", "rank", "half", "empty"],
)
def test_a_broken_vocabulary_is_named(tmp_path, content):
    (tmp_path / VOCABULARY).write_text(content)
    with pytest.raises(NotReady, match=VOCABULARY):
        WhisperTokenizer(tmp_path)
