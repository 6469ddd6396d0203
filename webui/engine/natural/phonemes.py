"""What the natural voice says: a segment of text becomes clauses of phonemes, Chinese and English
in turns. Pure but for eSpeak's phonemes.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from ...text.mandarin import read_mandarin
from ..espeak.library import EspeakLibrary
from . import syllables
from .lexicon import default_reading
from .text_plan import (
    HAN_CHAR,
    LAST_ACCENTED,
    LATIN_CHAR,
    MAX_UNIT_TOKENS,
    PAUSES_S,
    Unit,
    unit_text,
    units,
)

# aimed at; a scrap may still join, never more than TOO_LONG_TOKENS
MAX_CLAUSE_TOKENS = MAX_UNIT_TOKENS
TOO_LONG_TOKENS = 130
MIN_SYLLABLES = 3  # of a clause, where there are more: the network is unsure of shorter ones
LANGUAGES = ("", "auto", "zh", "en")
_ENDS = ".!?…"
_CUT_PAUSE_S = 0.03  # where a stretch without marks had to be cut


@dataclass(frozen=True)
class Clause:
    """One call of the network. language: "zh" or "en", of the base voice that says it; pause_s:
    silence after it at normal speed.
    """

    text: str
    phonemes: str
    language: str
    pause_s: float


def can_say(text: str, language: str) -> bool:
    """False where the text holds letters or numbers that the natural voice has no reading for, or
    nothing else, or its language is neither Chinese nor English. Modifier letters, such as the mark
    of a long vowel, may be left out beside others.
    """
    letters = [c for c in _tidy(text) if unicodedata.category(c)[0] in "LN"]
    unsayable = [c for c in letters if not _is_sayable(c)]
    return (
        language in LANGUAGES
        and (len(unsayable) < len(letters) or not any(c.isalnum() for c in text))
        and all(unicodedata.category(c) == "Lm" for c in unsayable)
    )


def clauses(
    segment: str, language: str, speaker: EspeakLibrary, is_first: bool = True
) -> list[Clause]:
    """What to say of `segment`, in order; [] when it holds nothing that can be said.

    `is_first`: its first clause is kept short.

    Letters of other writing systems and characters without a reading are left out; `can_say` tells
    beforehand.
    """
    text = "".join(c for c in _tidy(segment) if _is_kept(c))
    if re.search("[0-9]", text) and (language == "zh" or HAN_CHAR.search(text)):
        text = read_mandarin(text)
    spoken_units = [unit for unit in units(text, speaker) if unit.n_syllables]
    return [_clause(group) for group in _pack(spoken_units, is_first)]


def _tidy(text: str) -> str:
    """Letters and digits in their plain form, marks as they are, and 々 written out.

    Accents that eSpeak spells out by number are dropped.
    """
    out: list[str] = []
    for c in unicodedata.normalize("NFC", text):
        category = unicodedata.category(c)
        if c == "々":
            out.append(out[-1] if out else "")
        elif category == "Nd":
            out.append(str(unicodedata.digit(c)))
        elif category[0] in "LN":
            plain, base = unicodedata.normalize("NFKC", c), unicodedata.normalize("NFD", c)[0]
            out.append(base if c > LAST_ACCENTED and base.isascii() else plain)
        else:
            out.append(" " if category == "Zs" or c in "\t\r" else c)
    return "".join(out)


def _is_sayable(c: str) -> bool:
    if HAN_CHAR.match(c):
        return bool(syllables.phonemes(default_reading(c)))
    return c in "0123456789" or bool(LATIN_CHAR.match(c))


def _is_kept(c: str) -> bool:
    return _is_sayable(c) or unicodedata.category(c)[0] == "P" or c in "\n $%&+=@#<>"


def _pack(spoken_units: list[Unit], is_first: bool) -> list[list[Unit]]:
    """Units that are said in one call: up to a sentence's end or MAX_CLAUSE_TOKENS, the very first
    as soon as it has a few syllables.
    """
    groups: list[list[Unit]] = []
    tokens = n_syllables = 0
    for unit in spoken_units:
        is_full = n_syllables >= MIN_SYLLABLES and (
            groups[-1][-1].mark in _ENDS
            or tokens + unit.tokens > MAX_CLAUSE_TOKENS
            or (is_first and len(groups) == 1)
        )
        is_scrap = unit.n_syllables < MIN_SYLLABLES and not (is_first and len(groups) == 1)
        if groups and tokens + unit.tokens <= TOO_LONG_TOKENS and (is_scrap or not is_full):
            groups[-1].append(unit)
            tokens, n_syllables = tokens + unit.tokens, n_syllables + unit.n_syllables
        else:
            groups.append([unit])
            tokens, n_syllables = unit.tokens, unit.n_syllables
    return groups


def _clause(group: list[Unit]) -> Clause:
    """Chinese when a third of the syllables are: a Chinese voice can say English words, an English
    one has no tones.
    """
    text = "".join(unit_text(u) for u in group).strip()
    symbols = " ".join(" ".join(p.symbols for p in u.parts) + (u.mark or ",") for u in group)
    n_zh = sum(p.n_zh for u in group for p in u.parts)
    n_en = sum(p.n_en for u in group for p in u.parts)
    language = "zh" if 2 * n_zh >= n_en else "en"
    mark = group[-1].mark
    return Clause(text, symbols, language, PAUSES_S[mark] if mark else _CUT_PAUSE_S)
