"""What a rule of reading is, and how a list of them is applied. Knows no language."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# The pattern, what its match is read as, and the characters of which a sentence must hold one (""
# where any may do): most sentences hold few signs, and looking for a character costs a hundredth of
# looking for a pattern.
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str], str]


def apply_rules(rules: Sequence[Rule], sentence: str) -> str:
    """`sentence` after each rule in turn. Linear in its length, as every rule is."""
    for pattern, say, signs in rules:
        if not signs or any(sign in sentence for sign in signs):
            sentence = pattern.sub(say, sentence)
    return sentence
