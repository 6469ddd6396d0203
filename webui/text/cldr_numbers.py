"""Numbers as words of languages whose counting is not our own code: the CLDR rules for spelling
numbers out, through `unicode_rbnf`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

LONGEST = 12  # digits; longer ones are codes, not quantities
NUMBER = rf"\d{{1,{LONGEST}}}(?:\.\d{{1,20}})?"


@cache
def _engine(language: str) -> Any:
    from unicode_rbnf import RbnfEngine  # here: only Korean and Russian texts need it

    return RbnfEngine.for_language(language)


@lru_cache(maxsize=4096)
def spelled(digits: str, language: str, form: str) -> str:
    """ "21", "ru", "cardinal-feminine" -> двадцать одна.

    `form`: a CLDR rule set without "spellout-". At most LONGEST digits, for ordinals four.
    """
    return _engine(language).format_number(int(digits), ruleset_names=[f"spellout-{form}"]).text
