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
        return BadInput(
            f"No file or address is opened here. Save the recording as a voice named “{stem}” (on"
            " the page, or POST /v1/audio/voices), or send it along as the multipart file"
            f" {upload}.",
            f"这里不会打开任何文件或网址。请把这段录音存为名叫「{stem}」的音色（在页面上，或 POST"
            f" /v1/audio/voices），或用 multipart 文件字段 {upload} 随请求上传。",
            param=param,
            code="no_path",
        )
    return NotFound(
        f"There is no voice “{asked[:40]}” here. GET /v1/audio/voices lists them; its id or its"
        " name will do.",
        f"这里没有音色「{asked[:40]}」。GET /v1/audio/voices 可查看列表，填 id 或名称均可。",
        param=param,
        code="voice_gone",
    )


def _stem(asked: str) -> str:
    return _FILE.search(asked.strip())["stem"]
