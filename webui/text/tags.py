"""Marks in brackets in a text: event tags ([laughter], <strong>..</strong>) and readings of a word
(zhuàng: [zh][uàng], read: [R][EH1][D]). Knows their shape and the names in use; which ones work is
the engine's word.
"""

from __future__ import annotations

import difflib
import re

EVENTS = (
    "[breath]", "[quick_breath]", "[laughter]", "[cough]", "[sigh]", "[clucking]", "[hissing]",
    "[lipsmack]", "[noise]",
    "[vocalized-noise]", "[accent]", "[mn]", "<strong>", "</strong>", "<laughter>", "</laughter>",
)  # fmt: skip
TAG = re.compile(r"\[[a-z][a-z_-]{0,19}\]|</?[a-z][a-z_-]{0,19}>")
# of English, by ARPAbet
_PHONE = (
    r"(?:AA|AE|AH|AO|AW|AY|EH|ER|EY|IH|IY|OW|OY|UH|UW)[012]?|B|CH|D|DH|F|G|HH|JH|K|L|M|N|NG|P|"
    r"R|S|SH|T|TH|V|W|Y|Z|ZH"
)
_FINAL = "[a-zàáèéìíòóùúāēěīōūǎǐǒǔǘǚǜ]{1,4}"  # of Mandarin, with its tone; initials look like tags
_INITIAL = "[bpmfdtnlgkhjqxrywzcs]|[zcs]h"
_READING = re.compile(
    rf"\[(?:{_INITIAL})\]\[{_FINAL}\]|\[(?=[a-z]*[^a-z\]]){_FINAL}\]|(?:\[(?:{_PHONE})\]){{2,}}"
)  # of a whole syllable or word
UNTOUCHED = re.compile(
    rf"{TAG.pattern}|\[(?:{_PHONE}|{_FINAL})\]"
)  # what no rule of reading may change


def unknown_tags(text: str, known_tags: tuple[str, ...]) -> list[str]:
    """Tags in `text` that are not in `known_tags`, each once, in order of appearance."""
    return list(dict.fromkeys(tag for tag in TAG.findall(text) if tag not in known_tags))


def suggest(tag: str, known_tags: tuple[str, ...]) -> str | None:
    """The known tag that was probably meant, or None."""
    return next(iter(difflib.get_close_matches(tag, known_tags, n=1, cutoff=0.6)), None)


def strip_tags(text: str, known_tags: tuple[str, ...]) -> str:
    """`text` without the event tags and readings that the engine does not know; a word in brackets
    that is neither stays and is read.
    """
    text = _READING.sub(lambda m: m[0] if m[0].partition("]")[0] + "]" in known_tags else " ", text)
    return TAG.sub(lambda m: " " if m[0] in EVENTS and m[0] not in known_tags else m[0], text)
