"""Chinese words: how common each is, and how it is read.

Two tables of our own beside this file, and the phrases of pypinyin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pypinyin.contrib.tone_convert import to_tone3
from pypinyin.phrases_dict import phrases_dict
from pypinyin.pinyin_dict import pinyin_dict

MAX_WORD = 8
_CORPUS_BITS = math.log2(60_101_750)  # words counted for words.txt
_RARE_BITS, _OWN_BITS = 1.5, 6.0  # of words that only pypinyin, or only our own table, knows
_HERE = Path(__file__).parent


class Lexicon:
    """bits[word]: about how often the word occurs, as a power of two; own[word]: {character:
    reading}; light: words ending in a light tone.
    """

    def __init__(self) -> None:
        self.bits: dict[str, float] = {}
        self.own: dict[str, dict[str, str]] = {}
        self.light: set[str] = set()
        for head, words in _lines("words.txt"):
            self.bits.update(dict.fromkeys(words, int(head) / 2))
        for head, words in _lines("readings.txt"):
            if head == "light":
                self.light.update(words)
                continue
            reading, *words = words
            for word in words:
                self.own.setdefault(word, {})[head] = reading
        for word in (*self.own, *self.light):
            self.bits.setdefault(word, _OWN_BITS)
        self._readings: dict[str, tuple[str, ...]] = {}

    def cost(self, word: str) -> float | None:
        """How unlikely the word is; None for what is no word."""
        bits = self.bits.get(word)
        if bits is None:
            if len(word) > 1 and word not in phrases_dict:
                return None
            bits = _RARE_BITS if len(word) > 1 else 0.0
        return _CORPUS_BITS - bits

    def reading(self, word: str) -> tuple[str, ...]:
        """One syllable for each character, such as "zhong1"; "" where a character has no
        reading.
        """
        reading = self._readings.get(word)
        if reading is None:
            reading = self._readings[word] = self._read(word)
        return reading

    def _read(self, word: str) -> tuple[str, ...]:
        phrase = phrases_dict.get(word)
        own = self.own.get(word, {})
        if phrase is not None and len(phrase) == len(word):
            syllables = [
                _citation(c, _add_tones(choices[0]))
                for c, choices in zip(word, phrase, strict=True)
            ]
        elif len(word) > 2:
            syllables = [s for part in self._parts(word) for s in self.reading(part)]
        else:
            syllables = [default_reading(c) for c in word]
        syllables = [own.get(c, s) for c, s in zip(word, syllables, strict=True)]
        if word[1:].endswith("儿") and "儿" not in own:
            syllables[-1] = "er5"
        if word in self.light:
            syllables[-1] = syllables[-1][:-1] + "5"
        return tuple(syllables)

    def _parts(self, word: str) -> list[str]:
        """A longer word whose reading nobody gives, cut into the longest words whose reading is
        given.
        """
        out, at = [], 0
        while at < len(word):
            end = next(
                (
                    end
                    for end in range(len(word), at + 1, -1)
                    if end - at < len(word) and self._is_read(word[at:end])
                ),
                at + 1,
            )
            out.append(word[at:end])
            at = end
        return out

    def _is_read(self, word: str) -> bool:
        return word in phrases_dict or word in self.own or word in self.light

    def cut(self, run: str) -> list[str]:
        """Han characters cut into their likeliest words."""
        best: list[tuple[float, int]] = [(0.0, 0)]
        for end in range(1, len(run) + 1):
            choices = []
            for start in range(max(0, end - MAX_WORD), end):
                cost = self.cost(run[start:end])
                if cost is not None:
                    choices.append((best[start][0] + cost, start))
            best.append(min(choices))
        out, end = [], len(run)
        while end:
            start = best[end][1]
            out.append(run[start:end])
            end = start
        return out[::-1]


def default_reading(c: str) -> str:
    """The commonest reading of one character; "" for one that is not in the dictionary."""
    choices = pinyin_dict.get(ord(c), "")
    return _add_tones(choices.split(",")[0]) if choices else ""


@cache
def _add_tones(accented: str) -> str:
    return to_tone3(accented, v_to_u=False, neutral_tone_with_five=True)


def _citation(c: str, syllable: str) -> str:
    """Some phrases give 一 and 不 with the tone they take in speech; the tone they have alone is
    wanted here.
    """
    return {"一": "yi1", "不": "bu4"}.get(c, syllable)


def _lines(name: str) -> Iterator[tuple[str, list[str]]]:
    for line in (_HERE / name).read_text("utf-8").splitlines():
        if not line.startswith("#"):
            head, *words = line.split()
            yield head, words


@cache
def lexicon() -> Lexicon:
    return Lexicon()
