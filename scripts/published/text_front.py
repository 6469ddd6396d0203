"""The published front end's own text rules, kept to compare with golden data and to speak a text as
the public code would.

Pure strings. The studio itself prepares texts in webui/text; nothing here knows about voices or
models.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

MAX_TOKENS, MIN_TOKENS, MERGE_TOKENS = 80, 60, 20
_ZH_STOPS, _EN_STOPS, _COMMAS = "。？！；：、.?!;", ".?!;:", "，,"
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_GROUPS = (
    "",
    *(
        " " + w
        for w in "thousand million billion trillion quadrillion quintillion sextillion septillion "
        "octillion nonillion decillion".split()
    ),
)


def normalise(
    text: str, split: bool, count: Callable[[str], int], enabled: bool = True
) -> list[str] | str:
    """Segments to speak (`split`) or the text rewritten in one piece. count: length of an English
    piece in tokens.

    Texts with <|marks|> and empty texts stay untouched. Blank-only text is the empty list (the
    public code raises).
    """
    if not enabled or not text or ("<|" in text and "|>" in text):
        return [text] if split else text
    text = text.strip()
    if contains_chinese(text):
        text, language, length = _rewrite_chinese(text), "zh", len
    else:
        text, language, length = spell_out_number(text), "en", count
    if not split:
        return text
    pieces = split_paragraph(text, length, language, MAX_TOKENS, MIN_TOKENS, MERGE_TOKENS, False)
    return [piece for piece in pieces if not is_only_punctuation(piece)]


def _rewrite_chinese(text: str) -> str:
    text = replace_corner_mark(replace_blank(text.replace("\n", "")))
    text = remove_bracket(text.replace(".", "。").replace(" - ", "，"))
    return re.sub(r"[，,、]+$", "。", text)


def contains_chinese(text: str) -> bool:
    return any("一" <= c <= "\u9fff" for c in text)


def replace_corner_mark(text: str) -> str:
    return text.replace("²", "平方").replace("³", "立方")


def remove_bracket(text: str) -> str:
    return re.sub("[（）【】`]", "", text).replace("——", " ")


def replace_blank(text: str) -> str:
    """Keep a space only between two ASCII characters that are no spaces.

    A trailing space goes (the public code raises).
    """

    def stays(i: int) -> bool:
        around = text[i - 1], text[i + 1 : i + 2]
        return all(c and c.isascii() and c != " " for c in around)

    return "".join(c for i, c in enumerate(text) if c != " " or stays(i))


def is_only_punctuation(text: str) -> bool:
    """Punctuation and symbols only; true for the empty text."""
    return all(unicodedata.category(c)[0] in "PS" for c in text)


def spell_out_number(text: str) -> str:
    """Every run of digits in English words; nothing is put around them."""
    out, run = [], ""
    for c in text + "\0":
        if c.isdigit():
            run += c
            continue
        if run:
            out.append(number_words(run))
            run = ""
        out.append(c)
    return "".join(out)[:-1]


def number_words(digits: str) -> str:
    """English words of a whole number; characters that are digits but no decimal ones (x², ①) count
    for nothing.
    """
    value = int("".join(c for c in digits if c.isdecimal()) or "0")
    if value == 0:
        return "zero"
    groups = []
    while value:
        value, group = divmod(value, 1000)
        groups.append(group)
    if len(groups) > len(_GROUPS):
        return " ".join(_ONES[int(c)] for c in digits if c.isdecimal())
    named = [(_below_thousand(g) + _GROUPS[i], i, g) for i, g in enumerate(groups) if g][::-1]
    words = ", ".join(name for name, _, _ in named)
    if len(named) > 1 and named[-1][1] == 0 and named[-1][2] < 100:
        words = ", ".join(name for name, _, _ in named[:-1]) + " and " + named[-1][0]
    return words


def _below_thousand(n: int) -> str:
    hundreds, rest = divmod(n, 100)
    parts = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest:
        tens, units = divmod(rest, 10)
        parts.append(
            _ONES[rest] if rest < 20 else _TENS[tens - 2] + (f"-{_ONES[units]}" if units else "")
        )
    return " and ".join(parts)


def split_paragraph(
    text: str,
    length: Callable[[str], int],
    language: str,
    max_tokens: int,
    min_tokens: int,
    merge_tokens: int,
    at_commas: bool,
) -> list[str]:
    """Sentences packed greedily: a new segment starts where the next sentence would pass
    `max_tokens` and there are over `min_tokens`. A remainder shorter than `merge_tokens` joins the
    segment before it. There is no hard upper bound.
    """
    stops = _ZH_STOPS if language == "zh" else _EN_STOPS
    packed, buffer = [], ""
    for piece in _sentences(
        text, stops + (_COMMAS if at_commas else ""), "。" if language == "zh" else "."
    ):
        if length(buffer + piece) > max_tokens and length(buffer) > min_tokens:
            packed.append(buffer)
            buffer = ""
        buffer += piece
    if buffer and packed and length(buffer) < merge_tokens:
        packed[-1] += buffer
    elif buffer:
        packed.append(buffer)
    return packed


def _sentences(text: str, stops: str, final_stop: str) -> list[str]:
    if not text:
        return []
    if text[-1] not in stops:
        text += final_stop
    out, start = [], 0
    for i, c in enumerate(text):
        if c not in stops:
            continue
        if i > start:
            out.append(text[start : i + 1])
        start = i + 1
        if text[i + 1 : i + 2] in ('"', "”") and text[i + 1 :] and out:
            out[-1] += text[i + 1]
            start = i + 2
    return out
