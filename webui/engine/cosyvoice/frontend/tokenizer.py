"""Text to text ids: Qwen2's byte-level BPE from vocab.json and merges.txt, with a generation's own
tokens behind the base vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ....messages import message
from ....text import unknown_tags, without_marks, without_prompt_marks
from .. import file_checks
from ..model_faults import model_fault

END_OF_PROMPT = "<|endofprompt|>"
EVENT_TAGS = (
    "[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]",
    "[accent]", "[quick_breath]",
    "<laughter>", "</laughter>", "[hissing]", "[sigh]", "[vocalized-noise]", "[lipsmack]", "[mn]",
)  # fmt: skip
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    END_OF_PROMPT,
    *EVENT_TAGS,
)  # in this order, from training
# how Qwen2 cuts a text before merging
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TextTokenizer:
    """Reads `vocab.json` and `merges.txt` of a model directory.

    Thread-safe. The special ids start where the base vocabulary ends.
    specials: in this order, from training; tags: those of them that a person may type and that act
      as one.
    """

    def __init__(
        self,
        root: Path,
        folder: str = "CosyVoice-BlankEN",
        specials: Sequence[str] = SPECIALS,
        tags: Sequence[str] = EVENT_TAGS,
    ):
        """Raises NotReady naming the file that is missing or broken."""
        vocab = _vocabulary(root, f"{folder}/vocab.json")
        merges = _merges(root, f"{folder}/merges.txt", vocab)
        self._bpe = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        self._bpe.normalizer = normalizers.NFC()
        cut = pre_tokenizers.Split(Regex(_WORDS), "isolated")
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        self._bpe.decoder = decoders.ByteLevel()
        self.base, self._tags = len(vocab), tuple(tags)
        self._bpe.add_special_tokens(
            [AddedToken(name, normalized=False, special=True) for name in specials]
        )
        self.specials = {name: self._bpe.token_to_id(name) for name in specials}
        wrong = next(
            (name for i, name in enumerate(specials) if self.specials[name] != self.base + i), None
        )
        if wrong is not None:
            path = f"{folder}/vocab.json"
            actual = message("file.token_in_vocabulary", id=self.specials[wrong])
            raise model_fault(path, message("file.token_behind_vocabulary", wrong=wrong), actual)

    @property
    def size(self) -> int:
        """Ids in use; the embedding may have more rows."""
        return self.base + len(self.specials)

    def to_json(self) -> str:
        """The whole of it as a `tokenizer.json`, which other programs read."""
        return self._bpe.to_str()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens inside it are recognised, nothing is put before or behind
        it.
        """
        return self._bpe.encode(text, add_special_tokens=False).ids

    def typed(self, text: str) -> list[int]:
        """Ids of what a person typed: event tags work, marks are taken out, since they would be
        obeyed or read aloud.
        """
        return self.arriving(without_marks(text).strip())

    def arriving(self, piece: str) -> list[int]:
        """As `typed`, of a piece of a text that goes on: blanks at its ends count."""
        return self.encode(without_marks(piece))

    def decode(self, ids: list[int]) -> str:
        return self._bpe.decode(ids, skip_special_tokens=False)

    def unknown(self, text: str) -> list[str]:
        """What looks like an event tag and does not work as one, each once: it would be read
        aloud.
        """
        return unknown_tags(without_marks(text), self._tags)


def instruction(text: str) -> str:
    """The prompt text of an instruction: ended by the mark without which it would be spoken; marks
    inside are taken out.
    """
    return without_prompt_marks(text) + END_OF_PROMPT


def _vocabulary(root: Path, name: str) -> dict[str, int]:
    expected = message("file.json_vocabulary")
    source = file_checks.text(root, name, expected)
    try:
        table = json.loads(source)
    except (ValueError, RecursionError) as e:
        raise model_fault(name, expected, message("file.broken_json")) from e
    if (
        not isinstance(table, dict)
        or not table
        or sorted(v for v in table.values() if type(v) is int) != list(range(len(table)))
    ):
        raise model_fault(name, expected, message("file.other_table"))
    return table


def _merges(root: Path, name: str, vocab: dict[str, int]) -> list[tuple[str, str]]:
    expected = message("file.merge_lines")
    out = []
    for number, line in enumerate(file_checks.text(root, name, expected).split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        parts = tuple(line.rstrip("\r").split(" "))
        if len(parts) != 2 or not {*parts, "".join(parts)} <= vocab.keys():
            raise model_fault(
                name, expected, message("file.text_in_line", text=line[:40], n=number)
            )
        out.append(parts)
    return out
