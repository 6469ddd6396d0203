"""Which part of what was typed each spoken segment says.

Nothing is guessed: a part is told only where reading it gives the segment, letter for letter, or
where it lies alone between two such parts.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence

from . import sentences
from .clean import clean
from .language_detect import detect
from .marks import without_marks
from .pipeline import normalise, sentence_language
from .pronunciation_dict import NO_READINGS, Readings
from .tags import EVENTS, TAG

Span = tuple[int, int]
QUOTES = "\"'"
WIDE = "\u2e80"  # scripts from here on have no blanks between words
_MARKS = re.escape("。！？…，、；：—~" + "".join(set(sentences.CLOSERS) - set(QUOTES)))
# what is said with a segment behind it; a straight quote behind a blank opens what comes next
_CLOSING = re.compile(rf"(?:</[a-z_-]+>|[{_MARKS}{QUOTES}.!?;:,])*[\s{_MARKS}]*")
WINDOW_FACTOR, WINDOW_CHARS = 4, 80  # how much longer than a segment its source may be
FOUND_LETTERS = 4  # by which a segment is found again behind one that could not be traced


def source_spans(
    text: str, segments: Sequence[str], language: str = "auto", readings: Readings = NO_READINGS
) -> list[Span | None]:
    """For each segment (first, end) of the characters of `text` that it says, without the blanks
    around them; None where that cannot be told. Raises BadInput where readings make a part too
    long.
    """
    is_auto = language in ("", "auto")
    primary = detect(clean(text)) if is_auto else language
    apply_language = detect(without_marks(text)) if is_auto else language

    def say(part: str) -> str:
        bare = without_marks(part)
        tidy = clean(readings.apply(bare, apply_language) if readings.entries else bare)
        return letters(
            "".join(normalise(s, sentence_language(s, primary)) for s in sentences.split(tidy))
        )

    ends: list[Span | None] = []  # what lies between two segments is with the first
    at: int | None = 0
    for segment in segments:
        target = letters(segment)
        start = at if at is not None else _find(text, target, _last_end(ends))
        end = _end(text, start, target, say) if start is not None else None
        if end is None and at is not None:  # perhaps what could not be traced is over here
            start = _find(text, target, at)
            end = _end(text, start, target, say) if start not in (None, at) else None
        ends.append((start, end) if start is not None and end is not None else None)
        at = end
    for i, span in enumerate(ends):
        if span is None:
            ends[i] = _between(text, ends, i)
    return [_trimmed(text, span) if span else None for span in ends]


def letters(text: str) -> str:
    """What of a text counts when two are compared: no marks, blanks or event tags, one case."""
    bare = TAG.sub(lambda m: " " if m[0] in EVENTS else m[0], text)
    return "".join(c for c in unicodedata.normalize("NFC", bare).lower() if c.isalnum())


def _end(text: str, start: int, target: str, say: Callable[[str], str]) -> int | None:
    """Where the part of `text` that begins at `start` and is read as `target` ends, closing marks
    with it. None where none is.
    """
    window = text[start : start + WINDOW_FACTOR * len(target) + WINDOW_CHARS]
    cuts = [i for i in range(1, len(window) + 1) if _may_cut(window, i)]
    # a longer part is read as more letters, but for a figure that its unit changes
    k = bisect_left(cuts, len(target), key=lambda cut: len(say(window[:cut])))
    for cut in cuts[max(k - 1, 0) : k + 3]:
        if say(window[:cut]) == target:
            end = cut + len(_CLOSING.match(window, cut)[0])
            return start + (end if say(window[:end]) == target else cut)
    return None


def _may_cut(text: str, i: int) -> bool:
    """Not inside a word or a number."""
    if i == len(text):
        return True
    before, after = text[i - 1], text[i]
    return not (before.isalnum() and after.isalnum()) or before >= WIDE or after >= WIDE


def _find(text: str, target: str, start: int) -> int | None:
    """Where a part begins whose first letters are those of `target`."""
    head = target[:FOUND_LETTERS]
    if len(head) < FOUND_LETTERS:
        return None
    places = [i for i in range(start, len(text)) if text[i].isalnum()]
    index = "".join(text[i].lower()[:1] for i in places).find(head)
    return places[index] if index >= 0 else None


def _last_end(ends: Sequence[Span | None]) -> int:
    return next((span[1] for span in reversed(ends) if span), 0)


def _between(text: str, ends: Sequence[Span | None], i: int) -> Span | None:
    """The part between the two neighbours of segment `i`, where both can be told."""
    n = len(text)
    before = (0, 0) if i == 0 else ends[i - 1]
    after = (n, n) if i == len(ends) - 1 else ends[i + 1]
    if before is None or after is None or not letters(text[before[1] : after[0]]):
        return None
    return before[1], after[0]


def _trimmed(text: str, span: Span) -> Span | None:
    first, end = span
    while first < end and text[first].isspace():
        first += 1
    while end > first and text[end - 1].isspace():
        end -= 1
    return (first, end) if first < end else None
