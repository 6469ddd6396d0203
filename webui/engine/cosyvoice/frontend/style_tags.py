"""What the page's style chips wrote, read back: a generation that was taught other words follows
those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FORMS = (
    (re.compile(r"(.+?)说这句话[。.]?"), "、"),
    (re.compile(r"Speak (.+?)\.?"), ", "),
)  # how the page puts the chips' words together


def tag_instructions(instruction: str, instruction_by_tag: Mapping[str, str]) -> list[str]:
    """What `instruction_by_tag` has for each chip's words of `instruction`; nothing where
    it says anything else as well.
    """
    for form, between in _FORMS:
        match = form.fullmatch(instruction.strip())
        words = match[1].split(between) if match else []
        if words and all(word in instruction_by_tag for word in words):
            return [instruction_by_tag[word] for word in words]
    return []
