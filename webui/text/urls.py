"""Web and mail addresses inside a sentence.

Finds them; each language says in its own words what is between the letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

IP_ADDRESS = (
    r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.]*\w)"
)
_PATH = r"/(?:[A-Za-z\d./_~:?=&#%+@-]{0,300}[A-Za-z\d/])?"

ADDRESSES = (
    re.compile(
        r"(?<![A-Za-z\d])(?:https?://|www\.)[A-Za-z\d./_~:?=&#%+@-]{1,300}[A-Za-z\d/]", re.I
    ),
    re.compile(
        r"(?<![\w.+-])[A-Za-z\d._+-]{1,64}@[A-Za-z\d-]{1,63}(?:\.[A-Za-z\d-]{1,63}){1,4}", re.A
    ),
    re.compile(
        rf"(?<![A-Za-z\d.-])(?:[A-Za-z\d][A-Za-z\d-]{{0,62}}\.){{1,4}}"
        r"(?:com|cn|org|net|io|ai|dev|edu|gov)(?![A-Za-z\d])"
        rf"(?::\d{{1,5}})?(?:{_PATH})?"
    ),
    re.compile(
        rf"(?<![A-Za-z\d.-])(?:localhost|\d{{1,3}}(?:\.\d{{1,3}}){{3}})"
        rf"(?::\d{{1,5}}(?!\d)(?:{_PATH})?|{_PATH})"
    ),
)
_SILENT = re.compile(r"^https?://|/$", re.I)


def spell(address: str, signs: Mapping[str, str], digit: Callable[[str], str]) -> str:
    """`address` without its scheme and last slash, each sign and each digit as its own word."""
    return "".join(
        digit(c) if "0" <= c <= "9" else signs.get(c, c) for c in _SILENT.sub("", address)
    )
