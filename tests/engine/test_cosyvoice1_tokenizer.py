"""Text ids of the first generation: golden cases, what a person may type, a vocabulary that is broken."""

from __future__ import annotations

import pytest

from scripts.golden_checks import frontend1 as frontend_check
from tests.engine.cosyvoice1_small import GOLDEN1
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice1.tokenizer import (
    EVENT_TAGS,
    SPECIALS,
    VOCABULARY,
    WhisperTokenizer,
    mark_of,
)
from webui.errors import NotReady

END = [27, 91, 521, 2670, 28722, 662, 91, 29]  # <|endofprompt|> behind a word: ordinary ids


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


def test_marks_a_person_may_type(tokenizer):
    assert (
        tokenizer.typed(" <|en|>Rain ") == tokenizer.encode("<|en|>Rain")
        and tokenizer.encode("<|en|>")[0] == 50259
    )
    assert tokenizer.typed("<|jp|>こんにちは") == tokenizer.encode("<|ja|>こんにちは"), (
        "seen in published examples"
    )
    for order in ("<|endoftext|>", "<|translate|>", "<|0.00|>", "<|fr|>", "<|endofprompt|>"):
        assert tokenizer.typed(f"a{order}b") == tokenizer.encode("ab"), "it would be obeyed"
    assert tokenizer.typed("a<|nothing|>b") == tokenizer.encode("a<|nothing|>b")


def test_a_description_ends_where_it_must(tokenizer):
    assert tokenizer.instruction("A calm voice") == tokenizer.encode("A calm voice") + END
    assert tokenizer.instruction(
        " A calm<|endofprompt|> voice<|endoftext|><|endofprompt|> "
    ) == tokenizer.instruction("A calm voice")


def test_what_would_be_read_aloud_is_told(tokenizer, tmp_path):
    assert tokenizer.unknown("[laughter] <strong>so</strong> <|en|> <|jp|>") == []
    assert tokenizer.unknown("[giggle] <|sichuan|>") == ["[giggle]", "<|sichuan|>"]
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
