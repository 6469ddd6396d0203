"""A text without strange letters, taken apart: stretches between marks, in them words and pieces of
English, each with its phonemes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from ...text.language_detect import HAN
from ...text.sentences import may_end
from ..espeak.library import EspeakLibrary
from . import english, pinyin, sandhi, syllables

MAX_UNIT_TOKENS = 100
MAX_ENGLISH_CHARS, MAX_LETTERS = 90, 30  # given to eSpeak at once; in one word
# of the letters with an accent that eSpeak's English reads; later ones it spells out by number
LAST_ACCENTED = "\u017f"
LATIN = f"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-{LAST_ACCENTED}"
HAN_CHAR, LATIN_CHAR = re.compile(f"[{HAN}]"), re.compile(f"[{LATIN}]")
_SPOKEN = re.compile(rf"[{HAN}{LATIN}0-9]")
_RUNS = re.compile(rf"[{HAN}]+|[^{HAN}]+")
_CLOSERS = "\"'”’」』》〉"
_MARKS = re.compile(
    r"(?:[。！？；：，、"
    rf"…\n（）()\[\]【】{{}}]|——|\s[-–—]+\s|[,;:!?](?=[\s{HAN}{_CLOSERS}]|$)"
    rf"|\.+(?=[\s{HAN}{_CLOSERS}]|$))"
    rf"[\s。！？；：，、…,.;:!?—（）()\[\]【】{{}}{_CLOSERS}]*"
)
# what a run of marks is said as, the strongest first: (any of these, symbol, pause after it)
_STRENGTH = (
    ("？?", "?", 0.3), ("！!", "!", 0.3), ("…", "…", 0.3), ("。.\n", ".", 0.3), ("；;", ";", 0.22),
    ("：:", ":", 0.18),
    ("—–", "—", 0.15), ("，、,()（）[]【】{}-", ",", 0.13),
)  # fmt: skip
PAUSES_S = {symbol: pause_s for _, symbol, pause_s in _STRENGTH}


@dataclass(frozen=True)
class Part:
    """A word, or a stretch of English: what cutting leaves whole."""

    text: str
    symbols: str
    n_zh: int
    n_en: int


@dataclass
class Unit:
    """Parts up to a mark; mark: "" where a long stretch was cut."""

    parts: list[Part]
    mark: str
    mark_text: str  # the mark as it stands in the text

    @property
    def tokens(self) -> int:
        return sum(len(p.symbols) + 1 for p in self.parts) + 1

    @property
    def n_syllables(self) -> int:
        return sum(p.n_zh + p.n_en for p in self.parts)


def units(text: str, speaker: EspeakLibrary) -> Iterator[Unit]:
    start = 0
    for m in _MARKS.finditer(text):
        if m[0][0] == "." and m.end() < len(text) and not may_end(text[start : m.start()]):
            continue
        symbol = next((sign for signs, sign, _ in _STRENGTH if any(c in signs for c in m[0])), ",")
        yield from _split_long(
            _parts(text[start : m.start()], speaker), symbol, " ".join(m[0].split("\n"))
        )
        start = m.end()
    yield from _split_long(_parts(text[start:], speaker), ".", "")


def _parts(stretch: str, speaker: EspeakLibrary) -> list[Part]:
    """The words of a stretch without marks, in order."""
    out: list[Part] = []
    for m in _RUNS.finditer(stretch):
        if HAN_CHAR.match(m[0]):
            for word in sandhi.with_sandhi(pinyin.read(m[0])):
                _add_word(out, word)
        elif _SPOKEN.search(m[0]):
            for piece in _english_pieces(m[0]):
                # figures and signs are far longer when said than when written
                phoneme_lines = textwrap.wrap(english.phonemes(speaker, piece), MAX_ENGLISH_CHARS)
                for text, symbols in zip_longest((piece,), phoneme_lines, fillvalue=""):
                    if symbols:
                        n = max(1, english.syllable_count(symbols))
                        out.append(Part(text, symbols, 0, n))
    return out


def _add_word(out: list[Part], word: pinyin.Word) -> None:
    """Appends the word; 儿 is drawn into the syllable before it, which may end the word before."""
    spoken_symbols: list[str] = []
    for syllable in word.syllables:
        symbols = syllables.phonemes(syllable)
        if syllable == "er5" and spoken_symbols and not syllables.is_curled(spoken_symbols[-1]):
            spoken_symbols[-1] = syllables.curled(spoken_symbols[-1])
        elif (
            syllable == "er5" and out and out[-1].n_zh and not syllables.is_curled(out[-1].symbols)
        ):
            before = out.pop()
            word = pinyin.Word(before.text + word.text, ())
            spoken_symbols = [syllables.curled(before.symbols)]
        elif symbols:
            spoken_symbols.append(symbols)
    if spoken_symbols:
        out.append(Part(word.text, "".join(spoken_symbols), len(spoken_symbols), 0))


def _english_pieces(run: str) -> Iterator[str]:
    """A long run in about equal parts, cut at blanks; letters without a blank are cut hard."""
    run = re.sub(rf"([{LATIN}0-9]{{{MAX_LETTERS}}})(?=[{LATIN}0-9])", r"\1 ", run).strip(" -'")
    n_left = -(-len(run) // MAX_ENGLISH_CHARS)
    while n_left > 1:
        aim = min(MAX_ENGLISH_CHARS, -(-len(run) // n_left) + 8)
        cut = run.rfind(" ", 1, aim)
        cut = cut if cut > 0 else aim
        yield run[:cut].strip()
        run = run[cut:].strip()
        n_left = max(n_left - 1, -(-len(run) // MAX_ENGLISH_CHARS))
    if _SPOKEN.search(run):
        yield run


def _split_long(parts: list[Part], mark: str, mark_text: str) -> Iterator[Unit]:
    """A stretch in units of at most MAX_UNIT_TOKENS, about equally long."""
    whole = Unit(parts, mark, mark_text)
    n = -(-whole.tokens // MAX_UNIT_TOKENS)
    aim = min(MAX_UNIT_TOKENS, whole.tokens / n + 8)
    unit_parts: list[Part] = []
    for part in parts:
        if unit_parts and Unit([*unit_parts, part], "", "").tokens > aim:
            yield Unit(unit_parts, "", "")
            unit_parts = []
        unit_parts = [*unit_parts, part]
    yield Unit(unit_parts, mark, mark_text)


def unit_text(unit: Unit) -> str:
    """The text of a unit; a blank on the side of English."""
    out = ""
    for part in unit.parts:
        is_apart = out and part.text and (part.n_en or LATIN_CHAR.match(out[-1]))
        out += (" " if is_apart else "") + part.text
    return out + (unit.mark_text or " ")
