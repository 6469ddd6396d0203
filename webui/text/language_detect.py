"""Which writing system a text is in, and from that its language.

Knows characters, not words: Latin script is taken for English.
"""

from __future__ import annotations

import re

HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"

_ONE_SCRIPT = {
    "ko": re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"),
    "ru": re.compile("[\u0400-\u052f]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "ar": re.compile("[\u0600-\u06ff\u0750-\u077f]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
}
_HAN = re.compile(f"[{HAN}]")
_KANA = re.compile(f"[{KANA}]")
_UNSPACED = re.compile(
    f"[{HAN}{KANA}\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff"
    "\u1780-\u17ff\u3099-\u309a\u3130-\u318f\uac00-\ud7af]"
)
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+")
# Alphabets take about four letters where Han takes one character; without this a single Russian
# name would outvote a Chinese clause.
_LETTERS_PER_HAN = 4.0
_WORD_WEIGHT = 1.2


def has_han(text: str) -> bool:
    return _HAN.search(text) is not None


def unspaced(c: str) -> bool:
    """A character of a script whose words stand without blanks, or take endings without one: Han,
    kana, Hangul, Thai, Lao, Khmer, Burmese.
    """
    return _UNSPACED.match(c) is not None


def is_japanese(text: str) -> bool:
    """Han with kana nearby is Japanese; one decorative の in a Chinese name is not enough."""
    kana = _KANA.findall(text)
    return bool(kana) and not (kana == ["の"] and len(_HAN.findall(text)) >= 2)


def detect(text: str) -> str:
    """The primary BCP 47 tag of `text` by script: zh, ja, ko, ru, el, he, ar, hi, th, else en.

    Cantonese cannot be told: it must be asked for.
    """
    weights = {
        "en": _WORD_WEIGHT * len(_LATIN_WORD.findall(text)),
        "zh": float(len(_HAN.findall(text))),
    }
    kana = len(_KANA.findall(text))
    if kana and is_japanese(text) and kana >= 0.05 * weights["zh"]:
        weights["ja"] = weights.pop("zh") + kana
    if not text.isascii():
        for tag, letters in _ONE_SCRIPT.items():
            count = len(letters.findall(text))
            weights[tag] = float(count) if tag == "ko" else count / _LETTERS_PER_HAN
    best = max(weights, key=weights.__getitem__)
    return best if weights[best] > 0 else "en"
