"""The tab Voices: a grid drawn from the same list as the picker. Blind to how voices are stored."""

from __future__ import annotations

import gradio as gr

from . import view_models
from .html_part import part
from .i18n import T


def voice_list(studio, owner: str) -> list[dict]:
    """All voices of a visitor, as the scripts draw them; of their own, with what is known of the
    consent.
    """
    return [
        view_models.voice(v, None if v.starter else studio.consents.of(v))
        for v in studio.voices.list(owner)
    ]


def tab() -> None:
    with (
        gr.Tab(T("tab.voices"), id="voices", elem_id="kk-tab-voices"),
        gr.Column(elem_classes="kk-page"),
    ):
        part("voices", elem_id="kk-library")
