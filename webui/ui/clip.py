"""A sound that comes into the page: the upload and recorder widget, and the draft of what it took. Blind to what it is for."""

from __future__ import annotations

import gradio as gr

from ..errors import TooLarge
from ..studio.drafts import Draft
from .strings import T
from .uploads import Uploads


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


def draft_of(studio, uploads: Uploads, owner: str, path: str | None, after: str = "") -> Draft:
    """Return the draft of the upload that `path` names; asked again, the same one.

    after: id of a draft that this recording goes on from. Raises NotAllowed, TooLarge, BadInput, NotFound.
    """
    upload = uploads.get(owner, path or "")
    if upload.draft_id:
        return studio.drafts.get(owner, upload.draft_id)
    if len(upload.data) > studio.limits()["max_clip_mb"] << 20:
        raise TooLarge(
            "The file is over 10 MB or 60 s. Trim it and try again.",
            "文件超过 10 MB 或 60 秒。请裁短后再传。",
            code="too_large",
        )
    draft = studio.drafts.make(owner, upload.data, after)
    uploads.replace(path, draft.id)
    return draft
