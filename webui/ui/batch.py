"""The tab Batch: what comes in on the left, the jobs on the right.

The scripts ask /v2 for everything; nothing passes through Gradio.
"""

from __future__ import annotations

import gradio as gr

from .html_part import part
from .i18n import T


def tab() -> None:
    with (
        gr.Tab(T("tab.batch"), id="batch", elem_id="kk-tab-batch"),
        gr.Column(elem_classes="kk-page"),
        gr.Row(elem_classes=["kk-cols", "kk-batchcols"]),
    ):
        with gr.Column(), gr.Column(elem_classes="kk-card"):
            part("batch", elem_id="kk-batch")
        with gr.Column():
            part("jobs", elem_id="kk-jobs")
