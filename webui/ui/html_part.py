"""Drawn parts: a gr.HTML whose template never changes.

The scripts of assets/page draw inside it, so no update of Python's can wipe a canvas, the focus or
a scroll position. Blind to what is drawn.
"""

from __future__ import annotations

import json
import math

import gradio as gr

from ..errors import BadInput


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def number(value: object) -> float:
    """A number from the page's scripts.

    Raises BadInput for anything that is none, or not finite.
    """
    try:
        if not isinstance(value, bool) and math.isfinite(result := float(value)):
            return result
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadInput("bad_number.not_number")


def part(name: str, value: object = None, events: tuple[str, ...] = (), **kw) -> gr.HTML:
    """`name` is the key of `parts` in assets/page/parts.js that draws it.

    `events`: what the scripts may trigger; Gradio only offers `.act(...)` as a listener when the
    name stands in quotes inside js_on_load.
    """
    return gr.HTML(
        value=None if value is None else as_json(value),
        html_template="<div></div>",
        apply_default_css=False,
        js_on_load=f"kaikou.mount('{name}', element, props, watch, trigger, {list(events)})",
        **kw,
    )
