"""Composition root: the only place that knows which engine, store and page are in use."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import FastAPI

from . import api
from .engine.base import Engine
from .errors import NotReady
from .settings import Settings
from .studio import Studio

log = logging.getLogger(__name__)


def engine_maker(settings: Settings) -> Callable[[], Engine]:
    """What `--engine` means today: the built-in voice is the one engine of this version.

    Raises NotReady for an engine that cannot be had.
    """
    if settings.engine.name == "cosyvoice2":
        raise NotReady("CosyVoice2 is not part of this version yet. Start with --engine builtin or auto.", "本版本还不含 CosyVoice2，请用 --engine builtin 或 auto 启动。", code="no_engine")

    def make() -> Engine:
        from .engine.builtin import BuiltinEngine

        return BuiltinEngine(settings.engine.workers) if settings.engine.workers else BuiltinEngine()

    return make


def build(settings: Settings, make: Callable[[], Engine] | None = None) -> tuple[FastAPI, Studio]:
    """Start the studio's engine in the background and return the app with the page mounted."""
    make = make or engine_maker(settings)
    studio = Studio(settings)
    studio.start(make)
    app, static = api.build(studio, settings)

    import gradio as gr  # after the engine has begun to start: this import takes seconds

    from . import ui

    blocks, page = ui.build(studio, settings, static.version)
    gr.mount_gradio_app(app, blocks, path="/", server_name=settings.server.host, server_port=settings.server.port, root_path=settings.server.root_path or None,
                        max_file_size=f"{settings.limits.max_body_mb}mb", show_error=True, **page)
    return app, studio
