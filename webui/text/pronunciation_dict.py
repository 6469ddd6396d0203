"""A project's own pronunciations: whole terms in a text give way to their readings, in one pass.

Pure; blind to who owns them and where they lie.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ..errors import BadInput
from .language_detect import unspaced
from .tags import EVENTS, TAG, UNTOUCHED

MAX_TERM, MAX_READING = 64, 160  # characters
MAX_SAID = 8192  # a text with its readings put in: a short text must not become a book
_CLUSTERS = "\u200c\u200d"  # joiners that some scripts and emoji are written with
_INITIAL = re.compile(r"(?<![A-Za-z])[A-Z]$")
_STOP = re.compile(r"\.(?=\s+[^\sa-z])")
_FOLDED = {"\u2019": "'", "\u02bc": "'", "\t": " ", "\xa0": " ", "\u3000": " "}


@dataclass(frozen=True)
class Pronunciation:
    """One entry. language: primary tag, "" for all. key: the term folded; entries of one key and
    language are one.
    """

    term: str
    reading: str
    language: str
    key: str


# ---- characters ----------------------------------------------------------------------------------
@lru_cache(maxsize=8192)
def _fold(c: str) -> str:
    """One character for one, so that places in the folded text are places in the text: case and
    width do not count.
    """
    if c in _FOLDED:
        return _FOLDED[c]
    if "\uff01" <= c <= "\uff5e":
        c = chr(ord(c) - 0xFEE0)
    return next((small for small in (c.casefold(), c.lower()) if len(small) == 1), c)


def fold(text: str) -> str:
    """What two spellings of a term have in common. Same length as `text`."""
    return text.lower() if text.isascii() and "\t" not in text else "".join(map(_fold, text))


@lru_cache(maxsize=8192)
def _in_word(c: str) -> bool:
    """A letter, mark or digit of a script that puts blanks between words.

    Han, kana, Hangul, Thai and the like need no edges.
    """
    return (c.isalnum() or c == "_" or unicodedata.category(c)[0] == "M") and not unspaced(c)


def _starts(text: str, i: int) -> bool:
    """A term that begins at `i` does not begin inside a word or a number."""
    if i == 0 or not _in_word(text[i]):
        return True
    before, further = text[i - 1], text[i - 2] if i > 1 else " "
    if before == "'":
        return not _in_word(further)
    if before in ".," and text[i].isdigit():
        return not further.isdigit()
    return not _in_word(before)


def _ends(text: str, j: int) -> bool:
    """A term that ends before `j` does not end inside a word or a number; the s of a possessive may
    follow.
    """
    if j == len(text) or not _in_word(text[j - 1]):
        return True
    after, further = text[j], text[j + 1] if j + 1 < len(text) else " "
    if after == "'" and _in_word(further):
        return further == "s" and not _in_word(text[j + 2 : j + 3] or " ")
    if after in ".," and text[j - 1].isdigit():
        return not further.isdigit()
    return not _in_word(after)


# ---- entries -------------------------------------------------------------------------------------
def _tidy(text: str) -> str:
    """Composed, one blank between words, without marks that are only there for the layout
    (direction, zero width).
    """
    chars = (
        c
        for c in unicodedata.normalize("NFC", text)
        if c in _CLUSTERS or unicodedata.category(c) != "Cf"
    )
    return " ".join("".join(chars).split()).strip(_CLUSTERS)


def _has_broken(text: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n\r" for c in text)


def check(term: str, reading: str, language: str = "") -> Pronunciation:
    """The entry as it is kept.

    Raises BadInput: bad_term, bad_reading, too_long_term, too_long_reading, bad_language.
    """
    if len(term) > 8 * MAX_TERM or len(_tidy(term)) > MAX_TERM:
        raise BadInput("too_long_term", max_term=MAX_TERM, param="term")
    if len(reading) > 8 * MAX_READING or len(_tidy(reading)) > MAX_READING:
        raise BadInput("too_long_reading", max_reading=MAX_READING, param="reading")
    tidy_term, tidy_reading = _tidy(term), _tidy(reading)
    if not tidy_term:
        raise BadInput("bad_term.empty", param="term")
    if _has_broken(term) or TAG.search(tidy_term.lower()) or "<|" in tidy_term:
        raise BadInput("bad_term.marks", param="term")
    if not any(unicodedata.category(c)[0] in "LN" for c in tidy_reading):
        raise BadInput("bad_reading.empty", param="reading")
    if (
        _has_broken(reading)
        or any(tag in EVENTS for tag in TAG.findall(tidy_reading))
        or "<|" in tidy_reading
        or "|>" in tidy_reading
    ):
        raise BadInput("bad_reading.marks", param="reading")
    return Pronunciation(tidy_term, tidy_reading, check_language(language), fold(tidy_term))


def check_language(language: str) -> str:
    """The primary tag, "" for every language. Raises BadInput."""
    tag = language.strip().partition("-")[0].lower()
    if tag in ("", "auto"):
        return ""
    if not (tag.isascii() and tag.isalpha() and 2 <= len(tag) <= 3) or len(language) > 16:
        raise BadInput("bad_language.term", param="language")
    return tag


def find_key(term: str) -> str:
    """The key under which a term as somebody typed it is kept.

    Half characters, which no kept term holds, are replaced: no store takes them.
    """
    whole = term[: 8 * MAX_TERM].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return fold(_tidy(whole))


# ---- putting them in -----------------------------------------------------------------------------
class _Table:
    """The entries that hold for one language: key -> reading, and for each first character the
    lengths to try, longest first.
    """

    def __init__(self, entries: Iterable[Pronunciation]):
        self.readings = {
            e.key: e.reading for e in sorted(entries, key=lambda e: bool(e.language))
        }  # an entry of the language itself comes last, and wins
        lengths: dict[str, set[int]] = {}
        for key in self.readings:
            lengths.setdefault(key[0], set()).add(len(key))
        self.lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}

    def longest(self, text: str, i: int) -> int:
        """Where the longest whole term that begins at `i` ends; 0 when none does."""
        lengths = self.lengths.get(text[i])
        if not lengths or not _starts(text, i):
            return 0
        return next(
            (
                i + n
                for n in lengths
                if text[i : i + n] in self.readings and i + n <= len(text) and _ends(text, i + n)
            ),
            0,
        )


class Readings:
    """A compiled dictionary.

    `revision` names its content: equal content, equal revision, whoever owns it.
    """

    def __init__(self, entries: Iterable[Pronunciation] = ()):
        self.entries = tuple(sorted(entries, key=lambda e: (e.key, e.language)))
        content = "\0".join(part for e in self.entries for part in (e.key, e.language, e.reading))
        self.revision = hashlib.sha256(content.encode()).hexdigest()[:16] if self.entries else ""
        self._tables: dict[str, _Table] = {}

    def apply(self, text: str, language: str) -> str:
        """`text` with every whole term read as the dictionary says, longest first, never twice,
        never inside a tag. language: a primary tag.

        Linear in the text. Raises BadInput when the result would be longer than MAX_SAID.
        """
        if not self.entries:
            return text
        table = self._tables.get(language)
        if table is None:
            table = self._tables[language] = _Table(
                e for e in self.entries if e.language in ("", language)
            )
        text = unicodedata.normalize("NFC", text)
        out, at = [], 0
        for tag in UNTOUCHED.finditer(text):
            out += [_put_in(text[at : tag.start()], table), tag[0]]
            at = tag.end()
        spoken_text = "".join([*out, _put_in(text[at:], table)])
        if len(spoken_text) > MAX_SAID:
            raise too_long()
        return spoken_text


def too_long() -> BadInput:
    return BadInput("too_long_text.with_readings", max_said=MAX_SAID, param="input")


def _put_in(text: str, table: _Table) -> str:
    folded = fold(text)
    out: list[str] = []
    i = at = size = 0
    while i < len(text):
        end = table.longest(folded, i)
        if not end:
            i += 1
            continue
        reading = table.readings[folded[i:end]]
        blank_before = " " * (i > 0 and _in_word(text[i - 1]) and _in_word(reading[0]))
        blank_after = " " * (end < len(text) and _in_word(text[end]) and _in_word(reading[-1]))
        out += [text[at:i], blank_before, reading, blank_after]
        size += i - at + len(reading) + 3
        if size > 2 * MAX_SAID:
            raise too_long()
        i = at = end
        if (
            _INITIAL.search(reading)
            and not _INITIAL.search(text[:end][-2:])
            and _STOP.match(text, end)
        ):
            out.append(
                ".\n"
            )  # G P U. Then: no initial of a name, the sentence ends here as it did behind GPU
            i = at = end + 1
    return "".join([*out, text[at:]])


NO_READINGS = Readings()
