"""A sound that came inside a JSON field.

Knows base64 and data URLs; opens no address and no path, whatever they point at.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import BadInput, ClipTooLarge, KaikouError

MAX_BYTES = 10 << 20
MIN_SOUND_CHARS = 256  # no sound file is shorter: a short text that looks like a path is one
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
PATH = re.compile(r"[~.]{0,2}[/\\]|[A-Za-z]:\\|[^\s]*\.\w{1,5}$")
DATA = re.compile(
    r"data:(?P<kind>[\w.+-]*/?[\w.+-]*)(?:;[\w-]+=[^;,]{0,100}){0,4};base64$", re.IGNORECASE
)
KINDS = (
    "",
    "application/octet-stream",
    "application/ogg",
    "application/mp4",
)  # what recorders call their sound


def sound_in(text: str, param: str) -> bytes:
    """The bytes that `text` holds: base64 alone, or a data: URL with base64.

    Raises BadInput ("bad_audio", "no_address", "no_path"), TooLarge.
    """
    head, comma, _ = text[:400].partition(",")
    if text[:5].lower() == "data:":
        _check_head(head if comma else "", param)
        return _bytes(text[len(head) + 1 :], param)
    if ADDRESS.match(text):
        raise BadInput("no_address", param=param)
    if len(text) < MIN_SOUND_CHARS and PATH.match(text):
        raise BadInput("no_path.data_not_file", param=param)
    return _bytes(text, param)


def _check_head(head: str, param: str) -> None:
    match = DATA.fullmatch(head)
    kind = match["kind"].lower() if match else None
    if kind is None or not (kind in KINDS or kind.startswith(("audio/", "video/"))):
        raise BadInput("bad_audio.not_data_url", param=param)


def _bytes(text: str, param: str) -> bytes:
    if len(text) > MAX_BYTES * 4 // 3 + 4096:
        raise ClipTooLarge(param=param)
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("bad_audio.not_base64", param=param) from None
    if not data:
        raise BadInput("bad_audio.no_sound", param=param)
    return data


@contextmanager
def with_param(param: str) -> Iterator[None]:
    """What is wrong with a recording is told of the field that it came in."""
    try:
        yield
    except KaikouError as error:
        if error.param in ("audio_sample", "reference"):  # the latter is an engine's name for it
            error.param = param
        raise
