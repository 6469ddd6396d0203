"""The voice that a script means: by id, by name, or by the name of the file that it would have
used. A name is only ever compared, never opened.
"""

from __future__ import annotations

import re

from ...errors import BadInput, NotFound
from ...studio import OPENAI_VOICES, Studio
from ..audio_field import ADDRESS, PATH

_FILE = re.compile(r"(?P<stem>[^/\\]*?)(?:\.\w{1,5})?$")


def find(studio: Studio, owner: str, name: str) -> str | None:
    """Id of a voice that `owner` may use."""
    voices = studio.voices.list(owner)
    if any(v.id == name for v in voices) or name in OPENAI_VOICES:
        return name
    return next(
        (
            v.id
            for candidate in (name, _stem(name))
            for v in voices
            if candidate and candidate in (v.name, v.name_zh)
        ),
        None,
    )


def unknown(name: str, param: str, upload: str) -> BadInput | NotFound:
    """upload: the field in which a recording may come along."""
    stem = _stem(name)[:40]
    if ADDRESS.match(name) or PATH.match(name):
        return BadInput("no_path.save_voice_first", stem=stem, upload=upload, param=param)
    return NotFound("voice_gone.by_name", asked=name[:40], param=param)


def _stem(name: str) -> str:
    return _FILE.search(name.strip())["stem"]
