"""Toned pinyin to the symbols that the network was trained with: IPA, with an arrow after the vowel
for the tone.
"""

from __future__ import annotations

from functools import cache

_INITIALS = {
    "b": "p", "p": "pʰ", "m": "m", "f": "f", "d": "t", "t": "tʰ", "n": "n", "l": "l", "g": "k",
    "k": "kʰ", "h": "x",
    "j": "ʨ", "q": "ʨʰ", "x": "ɕ", "zh": "ꭧ", "ch": "ꭧʰ", "sh": "ʂ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ",
    "s": "s", "": "",
}  # fmt: skip
# "0" stands where the arrow goes
_FINALS = {
    "a": "a0", "ai": "ai0", "an": "a0n", "ang": "a0ŋ", "ao": "au0", "e": "ɤ0", "ei": "ei0",
    "en": "ə0n", "eng": "ə0ŋ", "er": "ɚ0",
    "i": "i0", "ia": "ja0", "ian": "jɛ0n", "iang": "ja0ŋ", "iao": "jau0", "ie": "je0", "in": "i0n",
    "ing": "i0ŋ", "iong": "jʊ0ŋ",
    "iu": "jou0", "o": "wo0", "ong": "ʊ0ŋ", "ou": "ou0", "u": "u0", "ua": "wa0", "uai": "wai0",
    "uan": "wa0n", "uang": "wa0ŋ",
    "ui": "wei0", "un": "wə0n", "uo": "wo0", "v": "y0", "ve": "ɥe0", "van": "ɥɛ0n", "vn": "y0n",
}  # fmt: skip
_WITHOUT_INITIAL = {
    "yi": "i", "ya": "ia", "yan": "ian", "yang": "iang", "yao": "iao", "ye": "ie", "yin": "in",
    "ying": "ing", "yong": "iong", "you": "iu",
    "wu": "u", "wa": "ua", "wai": "uai", "wan": "uan", "wang": "uang", "wei": "ui", "wen": "un",
    "wo": "uo",
    "yu": "v", "yue": "ve", "yuan": "van", "yun": "vn",
}  # fmt: skip
_ALONE = {"o": "ɔ0", "yo": "jɔ0", "weng": "wə0ŋ", "ê": "ɛ0", "m": "m0", "n": "n0", "ng": "ŋ0",
    "hm": "xm0", "hng": "xŋ0"}  # fmt: skip
_ARROWS = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}
_CURLED = "ɚ"


@cache
def phonemes(syllable: str) -> str:
    """ "zhong1" -> "ꭧʊ→ŋ"; "" for what is no syllable of Mandarin."""
    plain, tone = syllable[:-1], syllable[-1:]
    pattern = _ALONE.get(plain) or _pattern(_WITHOUT_INITIAL.get(plain, plain), plain)
    return pattern.replace("0", _ARROWS.get(tone, "")) if pattern else ""


def _pattern(spelling: str, plain: str) -> str:
    length = 2 if spelling[:2] in _INITIALS else 1 if spelling[:1] in _INITIALS else 0
    if plain in _WITHOUT_INITIAL:
        length = 0
    initial, final = spelling[:length], spelling[length:]
    if final == "i" and initial in ("zh", "ch", "sh", "r", "z", "c", "s"):
        return _INITIALS[initial] + "ɨ0"
    if initial in ("j", "q", "x") and final.startswith("u"):
        final = "v" + final[1:]
    final = {"ue": "ve"}.get(final, final)
    return _INITIALS[initial] + _FINALS[final] if final in _FINALS else ""


def curled(symbols: str) -> str:
    """A syllable with 儿 drawn into it: 玩儿 is said in one, without its n; so is 小孩儿, without
    its i.
    """
    for coda in ("n", "i"):
        at = symbols.rfind(coda)
        if at >= 2 and at >= len(symbols) - 2 and symbols[at - 1] in "aɛəeyi→↗↓↘":
            symbols = symbols[:at] + symbols[at + 1 :]
            break
    return symbols + _CURLED


def is_curled(symbols: str) -> bool:
    return symbols.endswith(_CURLED)
