"""From what was typed to the sentences that are spoken: clean, split, read out by script, cut to
length. Pure; results of the last texts are kept.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from functools import lru_cache

from cachetools import LRUCache, cached

from ..types import Segmentation
from . import sentences
from .clean import clean
from .english import read_english
from .korean import read_korean
from .language_detect import HAN, detect, has_han, is_japanese
from .mandarin import read_mandarin
from .marks import without_marks
from .pronunciation_dict import NO_READINGS, Readings
from .russian import read_russian
from .segments import pack
from .tags import UNTOUCHED, strip_tags

_HAN_RUN = re.compile(f"([{HAN}，。！？、；：“”‘’（）《》【】…—]+)")
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_CLAUSE_WORD = re.compile(
    r"(?<!\S)[A-Za-z][A-Za-z']*(?![\w:@/])"
)  # words between blanks: an address is not a clause
# fewer Latin words among Han are a name: 我用 iPhone 15 Pro is read with 十五
_ENGLISH_CLAUSE_WORDS = 4
_SAYABLE = re.compile(
    r"[\d&@%°#*_^~|\\=+<>/.$€£¥]|\b[A-Z][a-z]+ [IVX]+\b"
)  # the last: World War II
_READERS = {"en": read_english, "ko": read_korean, "ru": read_russian}
_CLAUSE_END = re.compile(rf"[，,、：:—–-][{re.escape(sentences.CLOSERS)}\s]*$")
_STOP_END = re.compile(rf"[。！？；…!?;.][{re.escape(sentences.CLOSERS)}\s]*$")
MAX_KEPT_CHARS, MAX_KEPT = 1_000_000, 256  # of prepared texts: at most a few megabytes
_HAN_SECONDS, _OTHER_SECONDS, _PAUSE_SECONDS = 0.21, 0.065, 0.25


def _read(run: str, language: str) -> str:
    if not _SAYABLE.search(run):
        return run
    if language in ("zh", "yue"):
        parts = _HAN_RUN.split(run)
        for i in range(0, len(parts), 2):
            if len(_CLAUSE_WORD.findall(parts[i])) >= _ENGLISH_CLAUSE_WORDS:
                parts[i] = _with_edges(parts[i], read_english(parts[i]))
        return _with_edges(run, read_mandarin("".join(parts)))
    reader = _READERS.get(language)
    return _with_edges(run, reader(run)) if reader else run


def _with_edges(before: str, after: str) -> str:
    """The blanks that stood around `before`, around `after`."""
    return " " * before.startswith(" ") + after + " " * (before.endswith(" ") and bool(after))


def sentence_language(sentence: str, primary: str) -> str:
    """Han goes with Chinese and Latin with English in a mixed text; sentences of digits alone, and
    other scripts, go with the whole.
    """
    if primary not in ("zh", "yue", "en"):
        return primary
    if has_han(sentence):
        return (
            "ja"
            if is_japanese(sentence) and detect(sentence) == "ja"
            else primary
            if primary != "en"
            else "zh"
        )
    own = detect(sentence)
    if own == "en":
        return "en" if _WORD.search(sentence) else primary
    return own


def normalise(sentence: str, language: str) -> str:
    """One clean sentence as it is said; event tags and readings in brackets stay untouched.

    Other languages than zh, yue, en, ko and ru are returned as they are.
    """
    out, at = [], 0
    for m in UNTOUCHED.finditer(sentence):
        out += [_read(sentence[at : m.start()], language), m[0]]
        at = m.end()
    out.append(_read(sentence[at:], language))
    return "".join(out).strip()


def _size(parts: tuple[str, ...]) -> int:
    """Characters of a prepared text; small ones count as more, so that MAX_KEPT bounds them."""
    return max(sum(map(len, parts)), MAX_KEPT_CHARS // MAX_KEPT)


@cached(
    LRUCache(MAX_KEPT_CHARS, _size),
    key=lambda text, language, readings, rule: (text, language, readings.revision, str(rule)),
    lock=threading.Lock(),
    info=True,
)
def _prepare_cached(
    text: str, language: str, readings: Readings, rule: Segmentation | None
) -> tuple[str, ...]:
    is_asked, text = language not in ("", "auto"), without_marks(text)
    tidy = clean(
        readings.apply(text, language if is_asked else detect(text)) if readings.entries else text
    )
    primary = language if is_asked else detect(tidy)
    spoken_parts = (normalise(s, sentence_language(s, primary)) for s in sentences.split(tidy))
    pieces = sentences.join_scraps([s for s in spoken_parts if s])
    if rule is not None:
        return tuple(pack(pieces, rule))
    if pieces:
        pieces[:1] = sentences.open_early(pieces[0])
    return tuple(part for piece in pieces for part in sentences.shorten(piece))


def prepare(
    text: str,
    language: str = "auto",
    readings: Readings = NO_READINGS,
    rule: Segmentation | None = None,
) -> list[str]:
    """The segments to speak, in order, none empty.

    Packed by the engine's `rule`; without one they are sentences of at most 60 Han or 200 Latin
    characters, the first one short.

    `language` is a BCP 47 primary tag ("zh", "yue", "en", ...) or "auto". `readings`: a project's
    own pronunciations, put in first. A function of (text, language, readings.revision, rule): the
    last results are kept. Raises BadInput only where the readings make the text too long; a text
    with nothing to say gives [].
    """
    return list(_prepare_cached(text, language, readings, rule))


def cache_counts() -> tuple[int, int]:
    """How many texts were prepared before, and how many had to be."""
    info = _prepare_cached.cache_info()
    return info.hits, info.misses


@lru_cache(maxsize=64)
def rewrite(text: str) -> str:
    """The whole text as it is said, in one piece: numbers, units and symbols in words.

    A text with nothing to say gives "".
    """
    tidy = clean(text)
    primary = detect(tidy)
    spoken_parts = [normalise(s, sentence_language(s, primary)) for s in sentences.split(tidy)]
    return sentences.glue([s for s in spoken_parts if s] or [""])


def segment_languages(segments: Sequence[str], text: str, language: str) -> list[str]:
    """The BCP 47 tag in which each of them is read. text, language: what they were prepared
    from.
    """
    primary = detect(clean(text)) if language in ("", "auto") else language
    return [sentence_language(segment, primary) for segment in segments]


def measure(text: str) -> tuple[int, int]:
    """(characters, sentences) of what was typed, without marks and event tags."""
    tidy = clean(strip_tags(text, ()))
    return len(tidy), sum(map(sentences.is_spoken, sentences.split(tidy)))


def sentence_spans(segments: Sequence[str], n_sentences: int) -> list[tuple[int, int]]:
    """For each segment (first, last) of the typed sentences that it speaks, counted from 1 to
    `n_sentences`; one that ends in a mark of a clause leaves its sentence open for the next. Lines
    that were put together without a mark between them count as one until the last segment.
    """
    wholes = [sum(map(sentences.is_spoken, sentences.split(segment))) for segment in segments]
    opens = [_CLAUSE_END.search(segment) is not None for segment in segments]
    if sum(wholes) - sum(opens) > n_sentences:  # a long sentence without a mark was cut
        opens = [_STOP_END.search(segment) is None for segment in segments]
    spans, number, most = [], 1, max(n_sentences, 1)
    for n_whole, is_open in zip(wholes, opens, strict=True):
        last = min(max(number, number + n_whole - 1), most)
        spans.append((min(number, last), last))
        number = last if is_open else last + 1
    if spans:
        spans[-1] = (spans[-1][0], most)
    return spans


def duration(segments: Sequence[str]) -> float:
    """Seconds that prepared segments last at normal speed: a guess from their letters and
    sentences.
    """
    text = " ".join(segments)
    n_wide = sum(c >= "\u2e80" for c in text)
    n_sentences = sum(map(sentences.is_spoken, sentences.split(text)))
    return round(
        n_wide * _HAN_SECONDS
        + (len(text) - n_wide) * _OTHER_SECONDS
        + n_sentences * _PAUSE_SECONDS,
        1,
    )


def warm() -> None:
    """Runs every rule once, so that the first listener does not pay for it."""
    for text, language in (
        ("2026年11月21日，涨了3.5%，共¥12.50。", "zh"),
        ("On May 5, 2024 it cost $3.50 at 3:30 pm.", "en"),
    ):
        prepare(text, language)
