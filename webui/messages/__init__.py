"""Every sentence that the studio answers with, in English and Chinese, by key.

`en.json` and `zh.json` hold the templates. The key of an error begins with its code:
`bad_name.voice` has the code `bad_name`. Blind to where a sentence is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PLACE = re.compile(r"\{(\w+)(?::([^{}|]+))?(?:\|([^{}|]*)\|([^{}|]*))?\}")
_COMMA = {"en": ", ", "zh": "、"}
# Read at once: an error about the last free descriptor must not need another one.
TEMPLATES: dict[str, dict[str, str]] = {
    language: json.loads((Path(__file__).parent / f"{language}.json").read_text("utf-8"))
    for language in _COMMA
}


class Message(NamedTuple):
    """A sentence, or a part of one, in both languages."""

    en: str
    zh: str


def message(key: str, /, **values: object) -> Message:
    """The sentence of `key` with `values` in its places.

    A place is {n}, {size:,} with a format of Python's, {names: or } with what stands between the
    members of a list (a comma where nothing is said), or {n|day|days} as in the page's strings.
    A value with both languages (a Message, an error) is shown in that of the sentence.
    Never raises: an unknown key is its own sentence, a missing value is left out.
    """
    return Message(*(_sentence(key, language, values) for language in Message._fields))


def _sentence(key: str, language: str, values: dict[str, object]) -> str:
    def filled(place: re.Match) -> str:
        name, spec, singular, plural = place.groups()
        value = values.get(name, "")
        if singular is not None:
            return singular if value == 1 else plural
        return _format_value(value, spec or "", language)

    return _PLACE.sub(filled, TEMPLATES[language].get(key, key))


def _format_value(value: object, spec: str, language: str) -> str:
    value = getattr(value, language, value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return (spec or _COMMA[language]).join(_format_value(v, "", language) for v in value)
    try:
        return format(value, spec)
    except (TypeError, ValueError):
        return str(value)
