"""Takes out of a text what nobody can say (controls, emoji, zero-width) and folds compatibility
forms. Blind to language.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from .marks import without_marks

_FULLWIDTH_KEPT = set(
    "，！？；：（）"
)  # Chinese punctuation stays: the splitter and the engines read pauses from it
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))
_FIXED = {
    "\n": "\n", "\r": "\n", "\u2028": "\n", "\u2029": "\n", "\x85": "\n",
    "−": "-", "‐": "-", "‑": "-", "‒": "-", "–": "-", "﹣": "-", "．": ".", "｡": "。", "〜": "~",
    "°": "°", "℃": "°C", "℉": "°F", "№": "No.", "©": "", "®": "", "™": "", "µ": "μ",
    "￥": "¥", "￡": "£", "￠": "¢", "⁄": "/", "∕": "/", "…": "…", "‥": "…",
}  # fmt: skip
_SPACES = re.compile(r"[ \t]+")
_BLANK_LINES = re.compile(r" *\n[\s]*")
_COLON_IN_TIME = re.compile(r"(?<=\d)：(?=\d)")
_COMMA_IN_NUMBER = re.compile(r"(?<=\d)，(?=\d{3}(?!\d))")
_APOSTROPHE = re.compile(r"(?<=[A-Za-z])[’ʼ＇](?=[A-Za-z])")
_SPECIAL_TOKEN = re.compile(
    r"<\||\|>"
)  # a model's control tokens must not be writable from outside
_DOTS = re.compile(r"\.{4,}")


@lru_cache(maxsize=8192)
def _fold(c: str) -> str:
    """What one character becomes: itself, a folded form, a blank, or nothing."""
    if c in _FIXED:
        return _FIXED[c]
    if c in _SUPERSCRIPTS:
        return "^" + _SUPERSCRIPTS[c]
    kind = unicodedata.category(c)
    if kind in ("Cs", "Cf", "Me") or 0xFE00 <= ord(c) <= 0xFE0F or 0xE0100 <= ord(c) <= 0xE01EF:
        return ""
    if kind in ("Cc", "Cn", "Co", "Zs", "Zl", "Zp") or 0x1F3FB <= ord(c) <= 0x1F3FF:
        return " "
    if c in _FULLWIDTH_KEPT:
        return c
    return _fold_form(c, kind)


def _fold_form(c: str, kind: str) -> str:
    plain = unicodedata.normalize("NFKC", c)
    if kind == "Nd":
        return str(unicodedata.decimal(c))
    if kind == "No":
        plain = plain.replace("⁄", "/")
        return f" {plain} " if plain != c else c
    if kind == "So":  # squared units are readable, stars and faces are not
        is_unit = plain != c and plain.isascii() and 0x3200 <= ord(c) <= 0x33FF
        return re.sub(r"(?<=[a-z])([23])$", r"^\1", plain) if is_unit else " "
    if 0xFF00 <= ord(c) <= 0xFFEF or 0x1D400 <= ord(c) <= 0x1D7FF or 0xFB00 <= ord(c) <= 0xFB06:
        return plain
    return c


def clean(text: str) -> str:
    """`text` composed (NFC), half-width, one blank between words, one newline between lines; never
    raises, whatever is in it. O(n).
    """
    if text.isascii() and text.isprintable():
        folded = text
    else:
        folded = "".join(map(_fold, unicodedata.normalize("NFC", text.replace("\r\n", "\n"))))
        folded = _APOSTROPHE.sub("'", _COMMA_IN_NUMBER.sub(",", _COLON_IN_TIME.sub(":", folded)))
        folded = re.sub(r"(?<=\^\d)\^(?=\d)", "", folded)
    folded = _DOTS.sub("...", _SPECIAL_TOKEN.sub(" ", without_marks(folded)))
    return _BLANK_LINES.sub("\n", _SPACES.sub(" ", folded)).strip()
