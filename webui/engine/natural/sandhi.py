"""Tones as they are said in running speech: 一 and 不 before other tones, third tones in a row,
light 不 and 一 between two verbs.
"""

from __future__ import annotations

from dataclasses import replace

from .lexicon import lexicon
from .pinyin import Word

_DIGITS = "零〇一二三四五六七八九十"
_COUNTED_IN_ORDER = "月号日楼级等班"  # 一月 is the first month: 一 keeps its tone


def with_sandhi(words: list[Word]) -> list[Word]:
    """The words of one stretch between two marks, with the tones they are said with."""
    letters = "".join(word.text for word in words)
    tones = [syllable[-1:] for word in words for syllable in word.syllables]
    ends = _ends(words)
    for i, c in enumerate(letters):
        if c == "一":
            tones[i] = _tone_of_one(letters, tones, i, i + 1 in ends and i not in ends)
        elif c == "不":
            tones[i] = _tone_of_not(letters, tones, i)
    _third_tones(words, tones)
    out, at = [], 0
    for word in words:
        n = len(word.syllables)
        pairs = zip(word.syllables, tones[at : at + n], strict=True)
        out.append(replace(word, syllables=tuple(s[:-1] + tone for s, tone in pairs)))
        at += n
    return out


def _ends(words: list[Word]) -> set[int]:
    """Places where a word ends and, so, where one begins."""
    out, at = {0}, 0
    for word in words:
        at += len(word.text)
        out.add(at)
    return out


def _tone_of_one(letters: str, tones: list[str], i: int, ends_longer_word: bool) -> str:
    before, after = letters[i - 1 : i] if i else "", letters[i + 1 : i + 2]
    if not after or ends_longer_word or before in ("第", "初") or after in _COUNTED_IN_ORDER:
        return "1"
    if (before and before in _DIGITS + "点") or after in _DIGITS:
        return "1"
    if before == after and letters[i - 2 : i - 1] != "一":  # 看一看, not 一天一天
        return "5"
    return "2" if _is_fourth(after, tones[i + 1]) else "4"


def _tone_of_not(letters: str, tones: list[str], i: int) -> str:
    before, after = letters[i - 1 : i] if i else "", letters[i + 1 : i + 2]
    if not after:
        return "4"
    if before == after:
        return "5"
    return "2" if _is_fourth(after, tones[i + 1]) else "4"


def _is_fourth(c: str, tone: str) -> bool:
    return tone == "4" or c == "个"


def _third_tones(words: list[Word], tones: list[str]) -> None:
    """Third before third becomes second: inside words first, then from the right across them."""
    start = 0
    for word in words:
        for unit_start, unit_end in _units(word.text):
            _raise(tones, start + unit_start, start + unit_end)
        _raise(tones, start, start + len(word.text))
        start += len(word.text)
    _raise(tones, 0, len(tones))


def _raise(tones: list[str], start: int, end: int) -> None:
    for i in range(end - 2, start - 1, -1):
        if tones[i] == tones[i + 1] == "3":
            tones[i] = "2"


def _units(text: str) -> list[tuple[int, int]]:
    """A longer word in its parts: two and one (展览馆) unless only the last two make a word
    (小老虎); else pairs.
    """
    n = len(text)
    if n == 3:
        is_word = lexicon().cost
        if is_word(text[:2]) is None and is_word(text[1:]) is not None:
            return [(1, 3)]
    return [(i, min(i + 2, n)) for i in range(0, n, 2)]
