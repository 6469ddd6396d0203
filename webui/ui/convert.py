"""The tab Convert: a recording comes in as a draft; which voice it becomes and the request itself
are the scripts' and the player's.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from ..errors import KaikouError
from . import view_models
from .audio_input import clip_view, draft_of, recorder
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
            recording = recorder("cv.label", "kk-src")
            part("mic_src", elem_id="kk-micsrc")
            source = part("source", events=("act", "place"), elem_id="kk-sourcecard")
        with gr.Column(), gr.Column(elem_classes="kk-card"):
            part("title_target", {"t": "cv.to", "s": "cv.to.hint"})
            part("target", elem_id="kk-target")
    return {"recording": recording, "source": source}


def wire(studio, uploads: Uploads, w: dict[str, gr.components.Component]) -> None:
    def source_in(path: str | None, request: gr.Request) -> str:
        try:
            draft = draft_of(studio, uploads, owner_of(request), path)
            return as_json(view_models.draft(draft) | {"name": Path(path).stem[:40]})
        except KaikouError as error:
            return as_json({"error": view_models.fault(error)})

    def source_act(event: gr.EventData, request: gr.Request) -> str:
        return as_json(clip_view(studio, uploads, owner_of(request), event._data))

    came = {"outputs": [w["source"]], "concurrency_limit": 4, **QUIET}
    w["recording"].stop_recording(
        source_in,
        inputs=[w["recording"]],
        js="(x) => { kaikou.sourceIn(); return [x]; }",
        **came,
    )
    w["source"].act(source_act, trigger_mode="multiple", **came)
    w["source"].place(
        None, outputs=[w["recording"]], js="() => kaikou.placed('source')", api_visibility="private"
    )
    w["recording"].start_recording(
        None, js="() => kaikou.tape.begun('#kk-src')", api_visibility="private"
    )
    w["recording"].clear(None, js="() => kaikou.sourceOut()", api_visibility="private")
