"""Composition root: the only place that knows which engines, store and page are in use."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.routing import Mount

from . import api
from .engine.base import Engine
from .engine.registry import engine_of, is_model
from .errors import BadInput
from .files import MANIFEST
from .settings import FLEET, EngineChoice, Settings
from .store import doctor_reports
from .store.model_dirs import Installed, find, first, remember, remembered
from .store.model_files import Model, ModelFetcher, read_manifest
from .studio import Doctor, DownloadableModel, ModelLibrary, Studio

if TYPE_CHECKING:
    from .cluster.shared_prompts import RedisPrompts

log = logging.getLogger(__name__)
Maker = Callable[[], Engine]
MAX_VOICE_WORKERS = 4  # some 110 MB each
MODEL_NAME, USUAL_ENGINE = "CosyVoice2-0.5B", "cosyvoice2"
ORDER = (USUAL_ENGINE, "cosyvoice3", "cosyvoice1")  # generations, where nobody says which
LITE = "lite"
QUIET_S = 60.0  # without speech, before a new model is examined by itself
# how often Gradio's queue looks for events of the page; left alone it does so every millisecond,
# and a resting studio uses 4 % of a core
QUEUE_LOOK_S = 0.02


def models_here(settings: Settings) -> list[Installed]:
    """All models below the model folder that an engine of ours can load."""
    return find(settings.paths.model_dir, engine_of)


def first_model(settings: Settings) -> Installed:
    """The one to begin with: that of --model, the one chosen last, else by generation.

    Where there is none: where scripts/fetch_models.py puts the usual one, so that what is missing
    has a name.
    """
    choice, root = settings.engine, settings.paths.model_dir
    models = [
        m
        for m in models_here(settings)
        if choice.name not in ORDER or m.engine == choice.name or m.path == root
    ]
    lite = is_lite(choice)
    model_name = choice.model or ("" if lite else remembered(settings.paths.data_dir))
    named = next((m for m in models if m.name == model_name), None)
    if named is None and choice.model:
        return Installed(choice.model, root / choice.model, engine_of(root / choice.model), False)
    order = sorted(ORDER, key=lambda engine: engine != "cosyvoice1") if lite else ORDER
    usual = Installed(
        MODEL_NAME, root / MODEL_NAME, choice.name if choice.name in ORDER else USUAL_ENGINE, False
    )
    return (
        named
        or first([m for m in models if m.is_whole] or models, order, read_manifest(MANIFEST))
        or usual
    )


def is_lite(choice: EngineChoice) -> bool:
    """The profile of that name means something on a CPU only. torch is not there yet to be
    asked.
    """
    has_gpu = choice.device in ("cuda", "mps") or (
        choice.device == "auto"
        and (Path("/proc/driver/nvidia/version").exists() or sys.platform == "darwin")
    )
    return choice.profile == LITE and not has_gpu


def voice_workers() -> int:
    """Processes of the built-in voice: as many as there are cores for us, two at least (one begins
    while another speaks), four at most (memory).
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(max(cores, 2), MAX_VOICE_WORKERS)


def engine_makers(settings: Settings, model_library: ModelLibrary | None = None) -> list[Maker]:
    """What `--engine` means: the engines to bring up, in order; a later one takes over from an
    earlier one when it is ready.
    """

    def builtin() -> Engine:
        from .engine.espeak import EspeakEngine

        return EspeakEngine(
            settings.engine.workers or voice_workers(),
            natural=(
                (settings.paths.natural_dir, settings.paths.data_dir / "natural")
                if settings.engine.natural
                else ()
            ),
        )

    def fleet() -> Engine:
        from .cluster.remote import ClusterEngine

        return ClusterEngine(settings.engine.name.removeprefix(FLEET), settings.engine.fleet_key)

    if settings.engine.name == "builtin":
        return [builtin]
    if settings.engine.name.startswith(FLEET):
        return [fleet]
    model = first_model(settings)
    cosyvoice = (
        model_library.maker(model)
        if model_library is not None
        else cosyvoice_maker(settings, model.path)
    )
    if settings.engine.name != "auto":
        return [cosyvoice]
    if model.path.is_dir():
        log.info("found %s: the built-in voice speaks until it is ready", model.name)
        return [builtin, cosyvoice]
    return [builtin]


def shared_prompts(settings: Settings) -> RedisPrompts | None:
    """Raises BadInput where Redis is to be used and its client is not installed."""
    choice = settings.engine
    if not choice.shared_cache:
        return None
    if importlib.util.find_spec("redis") is None:
        raise BadInput("bad_setting.no_redis", param="shared_cache")
    from .cluster.shared_prompts import RedisPrompts

    return RedisPrompts(choice.shared_cache, choice.shared_cache_password, choice.fleet_key)


def cosyvoice_maker(settings: Settings, root: Path) -> Maker:
    """The model directory `root`, of whichever generation, in a process of its own: what befalls
    torch or the device there is told to whoever was listening, and the page stays up.
    """

    def make() -> Engine:
        from .engine.remote import RemoteEngine

        return RemoteEngine(engine_of(root) or USUAL_ENGINE, cosyvoice_arguments(settings, root))

    return make


def cosyvoice_arguments(settings: Settings, root: Path) -> dict:
    """As JSON can say them, for the table in engine/remote/child.py.

    The profile that the doctor recommended, where the user has agreed to it and has set nothing
    else; and the end of a description that it found not to be read aloud.
    """
    choice = settings.engine
    usual, agreed = EngineChoice(), doctor_reports.agreed(root, settings.paths.data_dir)
    if (choice.precision, choice.steps) == (usual.precision, usual.steps):  # nobody set them
        choice = replace(choice, **{k: agreed[k] for k in ("precision", "steps") if k in agreed})
    if choice.precision == "auto" and doctor_reports.switched_off(root, settings.paths.data_dir):
        choice = replace(choice, precision="fp32")
    return {
        "root": str(root),
        "device": choice.device,
        "precision": choice.precision,
        "threads": choice.threads,
        "lock_memory": choice.lock_memory,
        "profile": "balanced" if choice.profile == LITE else choice.profile,
        "steps": choice.steps,
        "first_hop": choice.first_hop,
        "reinforced": choice.reinforced,
        "graphs": choice.graphs,
        "end_of_prompt": doctor_reports.end_of_prompt(root, settings.paths.data_dir),
    }


def set_models(studio: Studio, settings: Settings) -> None:
    """Tell the studio of the models there are, and let the page fetch those that are not: a
    directory that has all the names of one is somebody's own and is never touched.
    """
    if settings.engine.name == "builtin" or settings.engine.name.startswith(FLEET):
        return
    offers = _offers(settings) if settings.engine.name == "auto" else {}
    own = settings.paths.model_dir.name
    usual = next((name for name in (MODEL_NAME, own) if name in offers), "")

    def examination(root: Path) -> list[str]:
        arguments = ["--background", "--device", settings.engine.device]
        data = ["--data-dir", str(settings.paths.data_dir)]
        return [sys.executable, "-m", "webui.doctor", str(root), *arguments, *data]

    doctor = Doctor(
        examination,
        settings.paths.data_dir,
        studio.is_idle,
        QUIET_S if settings.engine.examine else None,
    )
    studio.set_models(
        ModelLibrary(
            studio.engine_manager,
            lambda: models_here(settings),
            lambda model: cosyvoice_maker(settings, model.path),
            offers,
            usual,
            lambda name: remember(settings.paths.data_dir, name),
            doctor,
            partial(_unexpected, read_manifest(MANIFEST), settings.paths.model_dir),
        ),
        doctor,
    )


def _unexpected(manifest: dict[str, Model], root: Path, name: str) -> list[str]:
    """Files of the model of that name that came with another checksum than the manifest expects."""
    if name not in manifest:
        return []
    folder = root if is_model(root) else root / name
    return ModelFetcher(folder, "modelscope", manifest[name]).unexpected()


def _offers(settings: Settings) -> dict[str, DownloadableModel]:
    """By name; into the model directory, or into the given model's own when it is one that we
    know.
    """
    manifest, root = read_manifest(MANIFEST), settings.paths.model_dir
    folders = {name: (root / name, model) for name, model in manifest.items()}
    if is_model(root):
        own_model = manifest.get(root.name) or (
            manifest[MODEL_NAME] if engine_of(root) == manifest[MODEL_NAME].engine else None
        )
        folders = {root.name: (root, own_model)} if own_model is not None else {}
    return {
        name: DownloadableModel(
            model.engine, model.bytes / 1e9, partial(ModelFetcher, folder, model=model)
        )
        for name, (folder, model) in folders.items()
        if not all(spec.optional or (folder / spec.path).exists() for spec in model.files)
    }


def build(settings: Settings, *makers: Maker) -> tuple[FastAPI, Studio]:
    """Start the studio's engines in the background and return the app with the page mounted."""
    api.rpc.check(settings)
    studio = Studio(settings, shared_prompts(settings))
    set_models(studio, settings)
    studio.start(*(makers or engine_makers(settings, studio.model_library)))
    app, static = api.build_app(studio, settings)

    # Where Gradio believes uploads to lie; it reads this when it is imported and when a page is
    # built. Uploads never reach the disk, so the folder is never made.
    folder = Path(tempfile.gettempdir()).resolve() / f"kaikou-{secrets.token_hex(8)}"
    os.environ["GRADIO_TEMP_DIR"] = str(folder)

    import gradio as gr  # after the engine has begun to start: this import takes seconds

    from . import ui

    uploads = ui.Uploads(folder)
    modules = static.modules("page/main.js")
    blocks, page, scripts = ui.build(studio, settings, static.version, modules, uploads)
    blocks._queue.sleep_when_free = QUEUE_LOOK_S
    gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        server_name=settings.server.host,
        server_port=settings.server.port,
        root_path=settings.server.root_path or None,
        max_file_size=f"{settings.limits.max_upload_mb}mb",
        show_error=True,
        mcp_server=True,
        **page,
    )
    # Gradio checks paths only after launch(), which a mounted page never calls.
    blocks.has_launched = True
    mounted = next(route for route in app.routes if isinstance(route, Mount))
    mounted.app = ui.PageMiddleware(
        mounted.app, blocks, uploads, settings.server.root_path, scripts
    )
    return app, studio
