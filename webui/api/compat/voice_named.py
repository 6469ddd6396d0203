"""The voice that a script means: by id, by name, or by the name of the file that it would have
used. A name is only ever compared, never opened.
"""

from __future__ import annotations

import re

from ...errors import BadInput, NotFound
from ...studio import OPENAI_VOICES, Studio
from ..audio_field import ADDRESS, PATH

_FILE = re.compile(r"(?P<stem>[^/\\]*?)(?:\.\w{1,5})?$")


def find(studio: Studio, owner: str, asked: str) -> str | None:
    """Id of a voice that `owner` may use."""
    voices = studio.voices.list(owner)
    if any(v.id == asked for v in voices) or asked in OPENAI_VOICES:
        return asked
    return next(
        (
            v.id
            for wanted in (asked, _stem(asked))
            for v in voices
            if wanted and wanted in (v.name, v.name_zh)
        ),
        None,
    )


def unknown(asked: str, param: str, upload: str) -> BadInput | NotFound:
    """upload: the field in which a recording may come along."""
    stem = _stem(asked)[:40]
    if ADDRESS.match(asked) or PATH.match(asked):
        return BadInput("no_path.save_voice_first", stem=stem, upload=upload, param=param)
    return NotFound("voice_gone.by_name", asked=asked[:40], param=param)


def _stem(asked: str) -> str:
    return _FILE.search(asked.strip())["stem"]
