"""English in the symbols that the network was trained with: eSpeak's American phonemes, respelt."""

from __future__ import annotations

import re

from ..espeak.library import EspeakLibrary
from .vocabulary import VOCABULARY

# eSpeak ties the letters of one sound with "^". Longer spellings first.
_RESPELT = (
    ("a^ɪ^ɚ", "Iəɹ"), ("a^ʊ^ɚ", "Wəɹ"), ("ʔˌn̩", "tᵊn"), ("ʔn̩", "tᵊn"), ("a^ɪ", "I"), ("a^ʊ", "W"),
    ("d^ʒ", "ʤ"), ("t^ʃ", "ʧ"),
    ("e^ɪ", "A"), ("o^ʊ", "O"), ("ɔ^ɪ", "Y"), ("ə^l", "ᵊl"), ("n̩", "ᵊn"), ("l̩", "ᵊl"),
    ("m̩", "ᵊm"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"),
    ("ɚ", "əɹ"), ("ɐ", "ə"), ("e", "A"), ("r", "ɹ"), ("x", "k"), ("ç", "k"), ("ɬ", "l"), ("ʔ", "t"),
    ("ʲ", ""), ("\u0303", ""),
    ("ː", ""), ("^", ""), ("ɡʲ", "ɡ"), ("g", "ɡ"), ("ɪə", "iə"), ("ɹɹ", "ɹ"), ("oɹ", "ɔɹ"),
    ("o", "ɔ"),
)  # fmt: skip
_ARTICLE = re.compile(r"(?<![^ ])ɐ(?![^ ])")  # the word "a", which keeps its own symbol
_JOINED_ARTICLE = re.compile(r"(?<=[^ ˈˌ])ðə(?![^ ])")  # eSpeak runs "of the" together
_SPELT_LETTERS = re.compile(r"\b(?:[A-Z] ){1,25}[A-Z]\b")
_VOWELS = re.compile("[AIOWYæɑɐɔəɚɛɜɪiuʊʌᵊᵻa]")


def phonemes(speaker: EspeakLibrary, text: str) -> str:
    """The symbols of an English stretch without marks of punctuation; words apart, stress
    marked.
    """
    text = _SPELT_LETTERS.sub(lambda m: m[0].replace(" ", ""), text)
    ipa = _ARTICLE.sub("\0", speaker.ipa("en", text))
    for spelling, symbol in _RESPELT:
        ipa = ipa.replace(spelling, symbol)
    ipa = _JOINED_ARTICLE.sub(" ðə", ipa.replace("\0", "ɐ"))
    return " ".join("".join(c for c in ipa if c in VOCABULARY).split())


def syllable_count(symbols: str) -> int:
    return len(_VOWELS.findall(symbols))
