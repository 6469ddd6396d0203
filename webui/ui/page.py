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

SCRIPTS = (  # in this order: each reads what the ones before it put on KK
    "core",
    "address",
    "theme",
    "engine_status",
    "diagnostics",
    "speak_form",
    "preferences",
    "clip_report",
    "clip_fixes",
    "clip_upload",
    "recorder",
    "ab_preview",
    "duration_estimate",
    "text_tools",
    "storage",
    "style",
    "history",
    "code_export",
    "audio_preview",
    "voices",
    "convert",
    "timing_panel",
    "dictionary",
    "batch_parser",
    "batch",
    "batch_jobs",
    "models",
    "api_keys",
    "share_dialog",
)
PLAYER = ("controller", "view")  # the other files of the player are loaded by these


def build(studio, settings, version: str, uploads: Uploads) -> tuple[gr.Blocks, dict]:
    """Returns the page and the keywords for gr.mount_gradio_app.

    `version`: what stands in /tts/static/{version}/.
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
    page = {
        "theme": theme(),
        "head": head(settings.paths.assets, facts),
        "i18n": i18n(),
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
    }
    return blocks, page


def head(assets: Path, facts: dict) -> str:
    """Style and scripts in <head>, inline: no request of their own, and they are there before the
    first part is drawn.
    """
    data = f"const KK_FACTS={as_json(facts)},KK_STRINGS=window.gradio_config.i18n_translations;"
    bar = assets / "player" / "player.html"
    data += f"const KK_PLAYER_HTML={as_json(bar.read_text('utf-8') if bar.is_file() else '')};"
    files = [assets / "page" / f"{n}.js" for n in SCRIPTS] + [
        assets / "player" / f"{n}.js" for n in PLAYER
    ]
    script = "\n".join(f.read_text("utf-8") for f in files if f.is_file())
    style = (assets / "style" / "page.css").read_text("utf-8")
    code = (data + script).replace("</script", "<\\/script")
    return f"<style>{style}</style><script>{code}</script>"
