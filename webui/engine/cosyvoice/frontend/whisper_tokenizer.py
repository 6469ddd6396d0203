"""Text to text ids: the byte-level BPE of Whisper's multilingual models.

Its vocabulary comes with this package; published directories have none.
"""

from __future__ import annotations

import base64
import copy
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ....messages import message
from ....text import unknown_tags, without_marks, without_prompt_marks
from .. import file_checks
from ..model_faults import model_fault

VOCABULARY = "multilingual.tiktoken"
EVENT_TAGS = (
    "[laughter]",
    "[breath]",
    "<laughter>",
    "</laughter>",
    "<strong>",
    "</strong>",
)  # plain text that -Instruct has learnt
SPOKEN = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th"
    " ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr"
    " pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt"
    " haw ln ha ba jw su yue"
).split()  # in this order, from training
LANGUAGES = (
    "zh",
    "en",
    "ja",
    "yue",
    "ko",
)  # of which a mark in front of a text makes the model speak it
_ORDERS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
_TIMES = [f"{step * 0.02:.2f}" for step in range(1501)]
SPECIALS = [
    f"<|{name}|>" for name in ("endoftext", "startoftranscript", *SPOKEN, *_ORDERS, *_TIMES)
]
# how a text is cut before merging
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# plain text to the vocabulary, as in the paper's examples and the public front end of 2024-07 to
# 2025-12
END_OF_PROMPT = "<endofprompt>"
MARK_END = "<|endofprompt|>"  # plain text too; the public front end's since then


def mark_of(language: str) -> str:
    """The mark of a BCP 47 tag, or nothing where there is none."""
    return f"<|{language}|>" if language in LANGUAGES else ""


class WhisperTokenizer:
    """Thread-safe.

    The special ids start where the base vocabulary ends. tags: event tags that the model at hand
    knows. end_of_prompt: what is put behind a description; today's public code writes
    <|endofprompt|>, and so do the golden data.
    """

    def __init__(self, root: Path, tags: tuple[str, ...] = (), end_of_prompt: str = END_OF_PROMPT):
        """root: a model directory, which may bring a vocabulary of its own.

        Raises NotReady when that is none.
        """
        ranks = _ranks(root if (root / VOCABULARY).exists() else Path(__file__).parent)
        self._bpe = Tokenizer(
            models.BPE(
                vocab={_letters(token) or "\0": rank for token, rank in ranks.items()},
                merges=_merges(ranks),
            )
        )
        cut = pre_tokenizers.Split(Regex(_WORDS), "isolated")
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        self._bpe.decoder = decoders.ByteLevel()
        self._bpe.add_special_tokens(
            [AddedToken(name, normalized=False, special=True) for name in SPECIALS]
        )
        self._tags, self.end_of_prompt = tags, end_of_prompt

    @property
    def size(self) -> int:
        """Ids in use; the embedding may have more rows."""
        return self._bpe.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens inside it are recognised, nothing is put before or behind
        it.
        """
        return self._bpe.encode(text, add_special_tokens=False).ids

    def typed(self, text: str) -> list[int]:
        """Ids of what a person typed: marks are taken out, since they would be obeyed or read
        aloud.
        """
        return self.encode(without_marks(text).strip())

    def instruction(self, text: str) -> list[int]:
        """Ids of a description: ended by the words without which it would be spoken, no mark but
        theirs in it.
        """
        return self.encode(without_prompt_marks(text) + self.end_of_prompt)

    def ending(self, end_of_prompt: str) -> WhisperTokenizer:
        """The same vocabulary, with another end of descriptions."""
        tokenizer = copy.copy(self)
        tokenizer.end_of_prompt = end_of_prompt
        return tokenizer

    def decode(self, ids: list[int]) -> str:
        return self._bpe.decode(ids, skip_special_tokens=False)

    def unknown(self, text: str) -> list[str]:
        """What looks like an event tag and does not work as one, each once."""
        return unknown_tags(without_marks(text), self._tags)


def _ranks(root: Path) -> dict[bytes, int]:
    expected = message("file.base64_lines")
    try:
        rows = (
            line.split()
            for line in file_checks.text(root, VOCABULARY, expected).splitlines()
            if line
        )
        ranks = {
            b"" if token == "=" else base64.b64decode(token, validate=True): int(rank)
            for token, rank in rows
        }  # one is empty
    except ValueError as e:
        raise model_fault(VOCABULARY, expected, message("file.other_lines")) from e
    if sorted(ranks.values()) != list(range(len(ranks))) or not all(
        bytes([byte]) in ranks for byte in range(256)
    ):
        raise model_fault(VOCABULARY, expected, message("file.other_table"))
    return ranks


def _merges(ranks: dict[bytes, int]) -> list[tuple[str, str]]:
    """Every way to make a token of two, the most frequent token first."""
    out = []
    for token in sorted(ranks, key=ranks.__getitem__):
        pairs = ((token[:at], token[at:]) for at in range(1, len(token)))
        out += [
            (_letters(left), _letters(right))
            for left, right in pairs
            if left in ranks and right in ranks
        ]
    return out


def _alphabet() -> dict[int, str]:
    """Bytes as the letters in which byte-level vocabularies are written: printable ones stand for
    themselves.
    """
    plain = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    other_bytes = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + at) for at, byte in enumerate(other_bytes)
    }


_LETTERS = _alphabet()


def _letters(token: bytes) -> str:
    return "".join(_LETTERS[byte] for byte in token)
