"""The tab Convert: a recording comes in as a draft; which voice it becomes and the request itself
are the scripts' and the player's.
"""

from __future__ import annotations

import gradio as gr

from .audio_input import clip_view
from .auth import owner_of
from .html_part import as_json, part
from .i18n import T
from .uploads import Uploads

QUIET = {"show_progress": "hidden", "api_visibility": "private"}


def tab() -> dict[str, gr.components.Component]:
    """Shown only while the engine converts: page.css hides it by what the engine's modes say."""
    with (
        gr.Tab(T("tab.convert"), id="convert", elem_id="kk-tab-convert"),
        gr.Column(elem_classes="kk-page"),
        gr.Row(elem_classes="kk-cols kk-halves"),
    ):
        with gr.Column(), gr.Column(elem_classes="kk-card"):
            part("title_source", {"t": "cv.src", "s": "cv.src.hint"})
            part("recorder_src", elem_id="kk-src")
            source = part("source", events=("act",), elem_id="kk-sourcecard")
        with gr.Column(), gr.Column(elem_classes="kk-card"):
            part("title_target", {"t": "cv.to", "s": "cv.to.hint"})
            part("target", elem_id="kk-target")
    return {"source": source}


def wire(studio, uploads: Uploads, w: dict[str, gr.components.Component]) -> None:
    def source_act(event: gr.EventData, request: gr.Request) -> str:
        return as_json(clip_view(studio, uploads, owner_of(request), event._data))

    w["source"].act(
        source_act,
        outputs=[w["source"]],
        concurrency_limit=4,
        trigger_mode="multiple",
        **QUIET,
    )
