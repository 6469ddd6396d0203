"""Packs sentences into the segments that an engine speaks in one call of its language model each.

Knows lengths; blind to where sentences end.

The rule is the published front end's (specification "First contact", section 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ..types import Segmentation
from .sentences import CLOSERS, glue, shorten, weight
from .tags import TAG

LETTER_UNITS = {
    "token": 0.22
}  # tokens in a letter, blank or mark of English, as Whisper's and Qwen's vocabularies count them
_STOPS, _COMMAS = "。！？；：…、.!?;:", "，,"


def units(text: str, rule: Segmentation) -> float:
    """The length of `text` in the units of `rule`."""
    return weight(text, LETTER_UNITS[rule.unit])


class Packer:
    """Tells where segments end in a sequence of pieces; a piece is a sentence, or a clause of one
    that is still arriving.

    `ends` holds the count of pieces up to the end of each segment that is certain; later pieces
    change none of them. A segment ends at a sentence, or at a clause where a sentence alone is
    longer than `max_units`.
    """

    def __init__(self, rule: Segmentation):
        self._rule = rule
        self.ends: list[int] = []
        # pieces so far, and those of them up to the last whole sentence
        self._n = self._n_whole = 0
        self._whole = self._rest = 0.0  # units of the open segment up to there, and behind it

    @property
    def n_certain(self) -> int:
        """Pieces of which it is certain in which segment they are."""
        return self._n_whole if self._whole > self._rule.min_units else self._n

    def add(self, piece: str, ends_sentence: bool = True) -> None:
        rule = self._rule
        self._n, self._rest = self._n + 1, self._rest + units(piece, rule)
        is_full = self._whole > rule.min_units and self._whole + self._rest > rule.max_units
        if is_full and self._rest >= rule.merge_units:
            self.ends.append(self._n_whole)
            self._whole, is_full = 0.0, False
        if not is_full and (ends_sentence or self._rest > rule.max_units):
            self._n_whole, self._whole, self._rest = self._n, self._whole + self._rest, 0.0

    def end(self) -> None:
        """All pieces so far belong to segments that are complete; a short rest goes with the one
        before it. Idempotent.
        """
        if self._n > (self.ends[-1] if self.ends else 0):
            self.ends.append(self._n)
        self._n_whole, self._whole, self._rest = self._n, 0.0, 0.0


def pack(sentences: Iterable[str], rule: Segmentation) -> list[str]:
    """Segments of whole sentences where these are not too long.

    Each ends in a mark of punctuation.
    """
    parts, packer = [], Packer(rule)
    for sentence in sentences:
        for part in shorten(close(sentence), rule.max_units, LETTER_UNITS[rule.unit]):
            parts.append(part)
            packer.add(part)
    packer.end()
    return [close(glue(parts[a:b]), _COMMAS) for a, b in pairwise([0, *packer.ends])]


def close(text: str, more_stops: str = "") -> str:
    """`text` with a full stop behind it where it ends in none, or in a comma only.

    Event tags alone stay as they are.
    """
    bare = TAG.sub(" ", text).rstrip(CLOSERS + " ")
    if not bare or bare.endswith(tuple(_STOPS + more_stops)):
        return text
    last = next((c for c in reversed(bare) if c.isalnum()), "")
    stop = "。" if last >= "\u2e80" else "."
    return (text.rstrip(_COMMAS + " ") if text.rstrip()[-1:] in _COMMAS else text) + stop
