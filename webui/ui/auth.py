"""Who a Gradio event belongs to: the guard wrote it into the request's scope before Gradio saw the
request.
"""

from __future__ import annotations

import gradio as gr


def owner_of(request: gr.Request) -> str:
    """account/visit, as the API knows it.

    Raises KeyError when the page runs without the guard, so that nobody shares by accident.
    """
    return request.request.scope["kk_owner"]
