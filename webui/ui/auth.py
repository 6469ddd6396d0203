"""Who a Gradio event belongs to: the guard wrote it into the request's scope before Gradio saw the
request.
"""

from __future__ import annotations

import gradio as gr
from starlette.requests import Request


def owner_of(request: gr.Request) -> str:
    """account/visit, as the API knows it.

    Raises KeyError when the page runs without the guard, so that nobody shares by accident.
    """
    return scope_of(request)["kk_owner"]


def scope_of(request: gr.Request | Request) -> dict:
    """The ASGI scope; Gradio's MCP server hands on the server's own request."""
    return getattr(request, "request", request).scope
