"""The whole page: header, tabs, player bar, and what goes into <head>.

Composes; each tab draws and wires itself.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from ..types import MAX_TEXT
from . import batch, convert, endpoints, speak, voices
from . import settings as settings_tab
from .html_part import as_json, part
from .i18n import i18n
from .theme import theme
from .uploads import Uploads


def build(
    studio, settings, version: str, modules: dict[str, str], uploads: Uploads
) -> tuple[gr.Blocks, dict, str]:
    """Returns the page, the keywords for gr.mount_gradio_app, and what `PageMiddleware` adds to
    <head>.

    `version`: what stands in /tts/static/{version}/. `modules`: name -> source of the scripts.
    """
    with gr.Blocks(title="开口 Kaikou", analytics_enabled=False) as blocks:
        with gr.Column(elem_id="kk-app"):
            w: dict[str, gr.components.Component] = {
                "header": part("header", studio.status(), elem_id="kk-head"),
                "form": part("form", events=("restore", "settings", "privacy"), elem_id="kk-form"),
            }
            with gr.Tabs(elem_id="kk-tabs", overflow_behavior="wrap"):
                w |= speak.tab(studio)
                voices.tab()
                w |= convert.tab()
                batch.tab()
                w |= settings_tab.tab(settings.privacy.keep_takes_days)
            w["player"] = part("player", events=("generate", "done"), elem_id="kk-player")
        speak.wire(studio, uploads, w)
        convert.wire(studio, uploads, w)
        settings_tab.wire(studio, w)
        endpoints.wire(studio, settings.server.root_path)

        def load(request: gr.Request):
            return speak.load(studio, request)

        blocks.load(
            load,
            outputs=[w["header"], w["picker"], w["takes"]],
            show_progress="hidden",
            api_visibility="private",
        )
    blocks.queue(default_concurrency_limit=8, max_size=256)
    facts = {
        "version": version,
        "share": settings.server.share,
        "lang": settings.server.lang,
        "max_text": MAX_TEXT,
        **studio.limits(),
    }
    assets = settings.paths.assets
    style = (assets / "style" / "page.css").read_text("utf-8")
    page = {
        "theme": theme(),
        "head": f"<style>{style}</style>",
        "i18n": i18n(),
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
    }
    return blocks, page, scripts(assets, facts, modules)


def scripts(assets: Path, facts: dict, modules: dict[str, str]) -> str:
    """What goes into <head> before Gradio's own script, so that ours run first: all modules in the
    page itself, for a slow line pays for each request.
    """
    bar = (assets / "player" / "player.html").read_text("utf-8")
    loader = (assets / "page" / "loader.js").read_text("utf-8")

    def data(name: str, value: object) -> str:
        text = as_json(value).replace("<", "\\u003c")
        return f'<script type="application/json" id="{name}">{text}</script>'

    return (
        data("kk-data", {"facts": facts, "bar": bar})
        + data("kk-modules", modules)
        + f'<script>{loader}</script><script type="module">import "page/main.js";</script>'
    )
