"""The tab Voices: a grid drawn from the same list as the picker. Blind to how voices are stored."""

from __future__ import annotations

import gradio as gr

from .parts import part
from .strings import T


def tab() -> None:
    with gr.Tab(T("tab.voices"), id="voices"), gr.Column(elem_classes="kk-page"):
        part("voices", elem_id="kk-library")
