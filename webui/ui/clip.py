"""A sound that comes into the page: the upload and recorder widget, and the bytes of what it took. Blind to what it is for."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from ..errors import BadInput, TooLarge
from .strings import T


def recorder(label: str, elem_id: str) -> gr.Audio:
    """`label`: key of its name. Upload comes first: dropping works only while that source is shown."""
    return gr.Audio(
        None,
        sources=["upload", "microphone"],
        type="filepath",
        label=T(label),
        elem_id=elem_id,
        interactive=True,
        buttons=[],
        editable=False,
        waveform_options=gr.WaveformOptions(
            waveform_color="#b9b4a8", waveform_progress_color="#0a6b57"
        ),
    )


def read(path: str | None, limit: int) -> bytes:
    """The uploaded file, of at most `limit` bytes. Raises TooLarge, BadInput."""
    try:
        if path and Path(path).stat().st_size > limit:
            raise TooLarge(
                "The file is over 10 MB or 60 s. Trim it and try again.",
                "文件超过 10 MB 或 60 秒。请裁短后再传。",
                code="too_large",
            )
        return Path(path or "").read_bytes()
    except OSError as error:
        raise BadInput(
            "This audio file cannot be read. Use wav, mp3, m4a or flac.",
            "读不懂这个音频文件。请换 wav、mp3、m4a 或 flac。",
            code="bad_audio",
        ) from error
