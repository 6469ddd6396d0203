"""Composition root: the only place that knows which engines, store and page are in use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from fastapi import FastAPI

from . import api
from .engine.base import Engine
from .settings import ROOT, Settings
from .store.models import ModelFetcher, read_manifest
from .studio import ModelDownload, Studio

log = logging.getLogger(__name__)
Maker = Callable[[], Engine]
MAX_VOICE_WORKERS = 4  # some 110 MB each
MODEL_NAME = "CosyVoice2-0.5B"
MANIFEST = ROOT / "pretrained_models" / "MANIFEST.json"


def model_dir(settings: Settings) -> Path:
    """The given directory when it holds a model itself, else the place below it where scripts/fetch_models.py puts it."""
    given = settings.paths.model_dir
    return given if (given / "cosyvoice2.yaml").exists() else given / MODEL_NAME


def voice_workers() -> int:
    """Processes of the built-in voice: as many as there are cores for us, two at least (one begins while another speaks), four at most (memory)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(cores, 2), MAX_VOICE_WORKERS)


def engine_makers(settings: Settings) -> list[Maker]:
    """What `--engine` means: the engines to bring up, in order; a later one takes over from an earlier one when it is ready."""

    def builtin() -> Engine:
        from .engine.builtin import BuiltinEngine

        return BuiltinEngine(settings.engine.workers or voice_workers())

    cosyvoice2 = cosyvoice_maker(settings)
    if settings.engine.name == "cosyvoice2":
        return [cosyvoice2]
    if settings.engine.name == "auto" and model_dir(settings).is_dir():
        log.info("found %s: the built-in voice speaks until it is ready", model_dir(settings).name)
        return [builtin, cosyvoice2]
    return [builtin]


def cosyvoice_maker(settings: Settings) -> Maker:
    """In a process of its own: what befalls torch or the device there is told to whoever was listening, and the page stays up."""

    def make() -> Engine:
        from .engine.hosted import HostedEngine

        return HostedEngine("cosyvoice2", cosyvoice_arguments(settings))

    return make


def cosyvoice_arguments(settings: Settings) -> dict:
    """As JSON can say them, for the table in engine/hosted/child.py."""
    choice = settings.engine
    return {"root": str(model_dir(settings)), "device": choice.device, "precision": choice.precision, "threads": choice.threads,
            "lock_memory": choice.lock_memory, "profile": choice.profile, "steps": choice.steps, "first_hop": choice.first_hop}


def offer_model(studio: Studio, settings: Settings) -> None:
    """Let the page fetch the model where none is: a directory that has all the names is somebody's own and is never touched."""
    model = read_manifest(MANIFEST)[MODEL_NAME]
    folder = model_dir(settings)
    if settings.engine.name != "auto" or all((folder / spec.path).exists() for spec in model.files):
        return
    studio.model = ModelDownload(lambda source: ModelFetcher(folder, source, model), lambda: studio.resident.start(cosyvoice_maker(settings)))


def build(settings: Settings, *makers: Maker) -> tuple[FastAPI, Studio]:
    """Start the studio's engines in the background and return the app with the page mounted."""
    studio = Studio(settings)
    studio.start(*(makers or engine_makers(settings)))
    offer_model(studio, settings)
    app, static = api.build(studio, settings)

    import gradio as gr  # after the engine has begun to start: this import takes seconds

    from . import ui

    blocks, page = ui.build(studio, settings, static.version)
    gr.mount_gradio_app(app, blocks, path="/", server_name=settings.server.host, server_port=settings.server.port, root_path=settings.server.root_path or None,
                        max_file_size=f"{settings.limits.max_body_mb}mb", show_error=True, **page)
    return app, studio
