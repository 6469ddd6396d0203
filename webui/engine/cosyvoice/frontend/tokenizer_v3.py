"""Text to text ids: the tokens that this generation has behind Qwen2's vocabulary.

Readings stand for characters or words, in brackets.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from ....text import PREFIX, without_prompt_marks
from .tokenizer import END_OF_PROMPT, EVENT_TAGS, SPECIALS, TextTokenizer

_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split()
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH".split()
_PINYIN = (
    "a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè"
    " ié iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p"
    " q r s sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng"
    " uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn èng èr"
    " é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn ēng ě ěi"
    " ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ "
).split()  # initials, and finals with their tone; in this order, from training


def _in_brackets(names: list[str]) -> tuple[str, ...]:
    return tuple(f"[{name}]" for name in names)


PHONES = _in_brackets(
    sorted([vowel + stress for vowel in _VOWELS for stress in ("", "0", "1", "2")] + _CONSONANTS)
)
READINGS = (*PHONES, *_in_brackets(_PINYIN))
TOKENS = (*SPECIALS, "<|endofsystem|>", *READINGS)
TAGS = (*EVENT_TAGS, *READINGS)
_LIKE_A_READING = re.compile(r"\[(?:[A-Z]{1,2}|[AEIOU][A-Z][0-9]|[a-zà-ǜ]{1,5})\]")


class TokenizerV3(TextTokenizer):
    """Of texts composed (NFC), since a reading whose accent stands apart would be spelt out."""

    def __init__(self, root: Path):
        """Raises NotReady naming the file that is missing or broken."""
        super().__init__(root, specials=TOKENS, tags=TAGS)

    def encode(self, text: str) -> list[int]:
        return super().encode(unicodedata.normalize("NFC", text))

    def unknown(self, text: str) -> list[str]:
        """Readings too that are none: a tone on the wrong letter, a phone that English has not."""
        text = unicodedata.normalize("NFC", text)
        return list(
            dict.fromkeys(
                [
                    *super().unknown(text),
                    *(mark for mark in _LIKE_A_READING.findall(text) if mark not in TAGS),
                ]
            )
        )


def instruction_prompt(instruction: str) -> str:
    """The prompt text of an instruction, whether or not it brings the prefix and the mark
    itself.
    """
    words = without_prompt_marks(instruction)
    return f"{PREFIX} {words}{END_OF_PROMPT}" if words else PREFIX + END_OF_PROMPT
