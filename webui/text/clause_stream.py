"""A text that is still arriving, cut into clauses, each as soon as it is complete.

Where it is cut depends on the text, never on the pieces it came in.

A wide mark (，。！？) ends a clause at once. A narrow one (, . ! ?) does when a blank has come
behind it: before that it may stand in a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import sentences
from .language_detect import HAN, KANA
from .marks import split_open
from .sentences import FIRST_WEIGHT, MAX_WEIGHT, MIN_WEIGHT, is_spoken, weight

FIRST_LEAST = 2.0  # a first clause that ends in a comma is at least so heavy
_WIDE = f"{HAN}{KANA}\uac00-\ud7af“「『《（【"
_MARK = re.compile(
    rf"(?P<end>[。！？；\n]|\.+[\"')\]}}]*(?=[\s{_WIDE}])|[!?;]+[\"')\]}}]*(?=[\s{_WIDE}]))|(?:[、"
    rf"…]|(?<!\d)[，：]|(?<=\d)[，：](?=\D)|[,:][\"')\]}}]*(?=[\s{HAN}])|[ ][-—–][ ]|——)"
)
_LEFT_OVER = (  # belongs to the clause before, or to none
    "”’」』）】》〉)]}。！？；，、：…!?;, \t\r\n"
)
_NARROW = 0.3


@dataclass(frozen=True)
class Clause:
    text: str
    ends_sentence: bool


class ClauseStream:
    """`push` what came, get the clauses that are complete; `flush` gives the rest.

    At most MAX_WEIGHT is ever held back.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._open = ""  # may become a mark of a model, and is no part of the text then
        self._is_first = True

    def push(self, text: str) -> list[Clause]:
        before, self._buffer = ("", self._buffer) if not self._is_first else (self._buffer, "")
        text, self._open = split_open(before + self._open + text, self._is_first)
        self._buffer += text
        out = []
        while (cut := self._cut()) is not None:
            end, is_end = cut
            out += self._take(end, is_end)
        return out

    def flush(self) -> list[Clause]:
        self._buffer += self._open
        self._open = ""
        return self._take(len(self._buffer), True)

    def _take(self, end: int, is_end: bool) -> list[Clause]:
        clause, self._buffer = self._buffer[:end].lstrip(_LEFT_OVER).rstrip(), self._buffer[end:]
        if not is_spoken(clause):
            return []
        self._is_first = False
        return [Clause(clause, is_end)]

    def _cut(self) -> tuple[int, bool] | None:
        """Where the first complete clause ends, and whether a sentence does."""
        window = self._buffer[: int(MAX_WEIGHT / _NARROW) + 2]
        for mark in _MARK.finditer(window):
            if self._ends_here(window, mark):
                return mark.end(), mark["end"] is not None
        if weight(window) > MAX_WEIGHT:
            return sentences.cut_at(window, MAX_WEIGHT), False
        return None

    def _ends_here(self, window: str, mark: re.Match[str]) -> bool:
        clause = window[: mark.end()].lstrip(_LEFT_OVER)
        if not is_spoken(clause) or weight(window[: mark.end()]) > MAX_WEIGHT:
            return False
        if mark["end"] is None:
            return weight(clause) >= (FIRST_LEAST if self._is_first else FIRST_WEIGHT)
        if (
            mark[0][0] == "."
            and mark[0][1:2] != "."
            and not sentences.may_end(clause[: -len(mark[0])])
        ):
            return False
        return self._is_first or weight(clause) >= MIN_WEIGHT
