"""Cuts a text into the pieces that are spoken one after another.

Knows punctuation, abbreviations and lengths; blind to sound.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate, pairwise

from .language_detect import HAN, KANA

# one Han character weighs 1, a Latin letter 0.3: 60 Han or 200 letters, about 13 s of speech
MAX_WEIGHT = 60.0
FIRST_WEIGHT = 12.0
MIN_WEIGHT = 3.0  # anything lighter is said together with its neighbour
_NARROW = 0.3
MARK_CHARS = 22  # no mark in brackets is longer
CLOSERS = "\"'”’」』）)】》〉]}"
_END = re.compile(rf"(?:[。！？…]+|[!?;；]+|\.+)[{re.escape(CLOSERS)}]*|\n")
_CLAUSE = re.compile(rf"(?:[，、：；;]|——|[,:](?=\s|[{HAN}])| [-—–] )[{re.escape(CLOSERS)}]*")
_ABBREVIATION = re.compile(
    r"(?:^|[^A-Za-z])(?:[A-Z]|[A-Za-z](?:\.[A-Za-z])+|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr"
    r"|Gen|Sgt|Capt|Lt|Mt|Hon|Rev|Maj|Col|Gov|Sen|Ave|Rd|Blvd|Ph\.D|No"
    r"|Nos|Inc|Ltd|Co|Corp|Fig|Vol"
    r"|pp|vs|etc|approx|est|Jan|Feb|Mar|Apr|Jun|Jul|Aug"
    r"|Sept?|Oct|Nov|Dec|a\.m|p\.m)$"
)
_STARTER = re.compile(
    r"\s*(?:The|This|That|These|Those|He|She|It|They|We|You|I|But"
    r"|And|So|In|On|At|If|When|A|An|My|His|Her|Our|Their"
    r"|What|Why|How|Who|There|Then)\b",
    re.A,
)
_WIDE_NEXT = re.compile(rf"[{HAN}{KANA}\uac00-\ud7af“「『《（【]")


def weight(text: str, narrow_weight: float = _NARROW) -> float:
    """Length as it is heard: 1 for each wide character, 0.3 for any other."""
    narrow = sum(c < "\u2e80" for c in text)
    return (len(text) - narrow) + narrow * narrow_weight


def is_spoken(text: str) -> bool:
    return any(c.isalnum() for c in text) or any(unicodedata.category(c)[0] in "LN" for c in text)


def _ends_here(text: str, m: re.Match[str], start: int) -> bool:
    mark, after = m[0], text[m.end() : m.end() + 24]
    if mark == "\n" or not after:
        return True
    if mark[0] in "。！？；":
        return True
    if mark[0] == "…":
        return len(mark) > 1 or not after[0].isspace() or not after.lstrip()[:1].islower()
    if mark[0] in "!?;":
        return not (after[0].isascii() and after[0].isalnum())
    return _full_stop_ends(text, m, start, after)


def _full_stop_ends(text: str, m: re.Match[str], start: int, after: str) -> bool:
    if not after[0].isspace():
        return _WIDE_NEXT.match(after) is not None
    rest = after.lstrip()
    if rest[:1].islower():
        return False
    before = text[max(start, m.start() - 12) : m.start()]
    if m[0].startswith(".."):
        return True
    if not before.strip().strip("0123456789"):  # "1. Apples": the number of a list item
        return False
    return not _ABBREVIATION.search(before) or (
        len(before.split()[-1]) > 1
        and "." in before.split()[-1]
        and _STARTER.match(after) is not None
    )


def may_end(before: str) -> bool:
    """A full stop after these words may end a sentence: they are no abbreviation and no number of a
    list.
    """
    near = before[-12:]
    return bool(near.strip().strip("0123456789")) and not _ABBREVIATION.search(near)


def split(text: str) -> list[str]:
    """`text` cut after each sentence, closing quotes and brackets with it; newlines always cut.

    Joined, nothing but blanks is missing.
    """
    out, start = [], 0
    for m in _END.finditer(text):
        if m.start() >= start and _ends_here(text, m, start):
            out.append(text[start : m.end()].strip())
            start = m.end()
    out.append(text[start:].strip())
    return [s for s in out if s]


def cut_at(text: str, limit: float, narrow_weight: float = _NARROW) -> int:
    """Where to cut the head of `text`, which is heavier than `limit`: after the last clause that
    fits, else at a blank, else hard.
    """
    sums = accumulate(narrow_weight if c < "\u2e80" else 1.0 for c in text)
    room = next((i for i, total in enumerate(sums) if total > limit), len(text) - 1)
    head = text[:room]
    clauses = [
        m.end() for m in _CLAUSE.finditer(text, 0, min(len(text), room + 1)) if m.end() <= room
    ]
    if clauses and clauses[-1] >= room // 4:
        return clauses[-1]
    blank = head.rfind(" ")
    if blank >= room // 4:
        return blank + 1
    while (
        room > 1
        and (
            unicodedata.category(text[room])[0] == "M"
            or unicodedata.category(text[room - 1])[0] == "M"
        )
        and len(head) - room < 8
    ):
        room -= 1
    mark = text.rfind("[", max(0, room - MARK_CHARS), room)
    return mark if mark > 0 and "]" not in text[mark:room] else max(1, room)


def shorten(sentence: str, limit: float = MAX_WEIGHT, narrow_weight: float = _NARROW) -> list[str]:
    """`sentence` in parts no heavier than `limit`, about equally long so that none is a scrap.

    Work is linear: each part is looked at once.
    """
    parts, weight_left, start = [], weight(sentence, narrow_weight), 0
    while weight_left > limit:
        aim = min(limit, max(limit / 2, weight_left / -(-weight_left // limit) * 1.25))
        window = sentence[start : start + int(limit / narrow_weight) + 2]
        end = start + cut_at(window, aim, narrow_weight)
        parts.append(sentence[start:end].strip())
        weight_left -= weight(sentence[start:end], narrow_weight)
        start = end
    parts.append(sentence[start:].strip())
    return [p for p in parts if p]


def open_early(sentence: str) -> list[str]:
    """The first sentence, cut at its first clause when it is long, so that the first sound comes
    early.
    """
    if weight(sentence) <= FIRST_WEIGHT:
        return [sentence]
    for m in _CLAUSE.finditer(sentence, 0, int(MAX_WEIGHT / _NARROW)):
        head, tail = sentence[: m.end()].strip(), sentence[m.end() :].strip()
        if weight(head) >= 2.0 and is_spoken(head) and weight(tail) >= 2.0 and is_spoken(tail):
            return [head, tail]
    return [sentence]


def join_scraps(pieces: list[str]) -> list[str]:
    """Pieces that are only punctuation or a syllable or two go to their neighbour; the first piece
    is left short. [] when none is spoken.
    """
    groups: list[list[str]] = []
    heavy, has_speech = (
        0.0,
        False,
    )  # of the last group, kept so that a growing group is never measured again
    for piece in pieces:
        own, is_said = weight(piece), is_spoken(piece)
        is_scrap = not is_said or (own < MIN_WEIGHT and len(groups) > 1)
        if groups and (not has_speech or (is_scrap and heavy + own <= MAX_WEIGHT)):
            groups[-1].append(piece)
            heavy, has_speech = heavy + own, has_speech or is_said
        elif is_said or not groups:
            groups.append([piece])
            heavy, has_speech = own, is_said
    return [glue(g) for g in groups] if has_speech else []


def glue(parts: Sequence[str]) -> str:
    """Parts as one text. Blanks only where both sides are narrow."""
    out = [parts[0]]
    for before, after in pairwise(parts):
        out.append(after if before[-1] >= "\u2e80" or after[0] >= "\u2e80" else " " + after)
    return "".join(out)
