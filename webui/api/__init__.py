"""HTTP and WebSocket routes: JSON <-> types, one file per resource, no decisions."""

from __future__ import annotations

from fastapi import FastAPI

from ..settings import Settings
from ..studio import Studio
from . import (
    alignment,
    batches,
    compat,
    consents,
    error_handlers,
    health,
    keys,
    models,
    openapi,
    player_socket,
    prepare,
    pronunciations,
    share_links,
    speech,
    takes,
    voices,
)
from .auth import Sessions
from .door import Door
from .middleware.access import AccessMiddleware
from .recent_jobs import RecentJobs
from .rpc import Rpc
from .text_socket import socket


def build_app(studio: Studio, settings: Settings) -> tuple[FastAPI, health.Static]:
    """The app with all our routes, behind the guard. Gradio's page is mounted into it by app.py."""
    app = FastAPI(
        title="Kaikou",
        version=studio.version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    sessions, recent_jobs, static = (
        Sessions(settings.paths.data_dir, settings.server, studio.keys, studio.logins),
        RecentJobs(),
        health.Static(settings.paths.assets),
    )
    app.include_router(speech.routes(studio, recent_jobs))
    app.include_router(
        player_socket.routes(studio, sessions, recent_jobs, settings.limits.silent_s)
    )
    app.include_router(socket.routes(studio, recent_jobs, settings.limits.idle_s))
    app.include_router(compat.cosyvoice.routes(studio, recent_jobs))
    app.include_router(compat.gptsovits.routes(studio, recent_jobs))
    app.include_router(voices.routes(studio))
    app.include_router(takes.routes(studio))
    app.include_router(alignment.routes(studio, recent_jobs))
    app.include_router(consents.routes(studio))
    app.include_router(models.routes(studio))
    app.include_router(prepare.routes(studio))
    app.include_router(pronunciations.routes(studio))
    app.include_router(batches.routes(studio))
    app.include_router(keys.routes(studio, settings, sessions))
    app.include_router(share_links.routes(studio, settings, sessions, static))
    app.include_router(health.routes(studio, settings, sessions, static))
    app.include_router(health.nothing())
    error_handlers.install(app)
    openapi.install(app)
    door = Door(settings, sessions, studio)
    app.add_middleware(
        AccessMiddleware, settings=settings, sessions=sessions, studio=studio, door=door
    )
    app.state.recent, app.state.rpc = recent_jobs, Rpc(studio, settings, door, recent_jobs)
    return app, static
