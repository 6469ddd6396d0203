"""Marks that published examples of the CosyVoice models show in a text: orders in <|…|>, a leading
language, the prefix of the third generation.

Nothing of them is ever spoken (specification "First contact", section 3).
"""

from __future__ import annotations

import re

from ..types import LANGUAGES

# stands before <|endofprompt|> in every example of the third generation
PREFIX = "You are a helpful assistant."
MAX_INSTRUCTION_CHARS = 200  # between the prefix and its mark
_MARK = re.compile(r"<\|[^|<>]{1,32}\|>|<endofprompt>")
_PROMPT = re.compile(
    rf"\s*{re.escape(PREFIX)}[^<>|]{{0,{MAX_INSTRUCTION_CHARS}}}<\|?endofprompt\|?>"
)
_LANGUAGE = re.compile(r"\s*<\|\s*([A-Za-z]{2,3})\s*\|>")
_HABITS = {"jp": "ja"}  # seen in published examples
_OPEN = re.compile(r"<(?:\|[^|<>]{0,32}\|?|e[a-z]{0,10})?$")


def without_marks(text: str) -> str:
    """`text` without marks, and without the prompt of the third generation that stands in front of
    one.
    """
    prompt = _PROMPT.match(text)
    return _without(text[prompt.end() :] if prompt else text)


def without_prompt_marks(instruction: str) -> str:
    """An instruction without the prefix and the marks that examples write around it."""
    return _without(instruction).strip().removeprefix(PREFIX).strip()


def _without(text: str) -> str:
    while (bare := _MARK.sub("", text)) != text:  # what is left of nested marks may be one again
        text = bare
    return text


def marked_language(text: str) -> str:
    """The BCP 47 tag of the language mark that `text` begins with, "" where there is none that is
    known.
    """
    match = _LANGUAGE.match(text)
    tag = match[1].lower() if match else ""
    tag = _HABITS.get(tag, tag)
    return tag if tag in LANGUAGES else ""


def split_open(text: str, is_start: bool) -> tuple[str, str]:
    """A part of a text that is still arriving: (it without its marks, its end that may become a
    mark). is_start: nothing was before it.
    """
    text = without_marks(text) if is_start else _without(text)
    start = text.lstrip()
    if is_start and start.startswith(PREFIX) and len(start) <= len(PREFIX) + MAX_INSTRUCTION_CHARS:
        return "", text
    match = _OPEN.search(text, max(0, len(text) - 40))
    return (text[: match.start()], match[0]) if match else (text, "")
