"""HTTP and WebSocket routes: JSON <-> types, one file per resource, no decisions."""

from __future__ import annotations

from fastapi import FastAPI

from ..settings import Settings
from ..studio import Studio
from . import (
    consents,
    demos,
    document,
    facades,
    faults,
    jobs,
    keys,
    models,
    prepare,
    pronunciations,
    service,
    speech,
    stream,
    takes,
    textin,
    voices,
)
from .guard import Guard
from .recent import Recent
from .session import Sessions


def build(studio: Studio, settings: Settings) -> tuple[FastAPI, service.Static]:
    """The app with all our routes, behind the guard. Gradio's page is mounted into it by app.py."""
    app = FastAPI(
        title="Kaikou",
        version=studio.version,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    sessions, recent, static = (
        Sessions(settings.paths.data_dir, settings.server, studio.keys, studio.logins),
        Recent(),
        service.Static(settings.paths.assets),
    )
    app.include_router(speech.routes(studio, recent))
    app.include_router(stream.routes(studio, sessions, recent, settings.limits.silent_s))
    app.include_router(textin.routes(studio, recent, settings.limits.idle_s))
    app.include_router(facades.cosyvoice.routes(studio, recent))
    app.include_router(facades.gptsovits.routes(studio, recent))
    app.include_router(voices.routes(studio))
    app.include_router(takes.routes(studio))
    app.include_router(consents.routes(studio))
    app.include_router(models.routes(studio))
    app.include_router(prepare.routes(studio))
    app.include_router(pronunciations.routes(studio))
    app.include_router(jobs.routes(studio))
    app.include_router(keys.routes(studio, settings, sessions))
    app.include_router(demos.routes(studio, settings, sessions, static))
    app.include_router(service.routes(studio, settings, sessions, static))
    app.include_router(service.nothing())
    faults.install(app)
    document.install(app)
    app.add_middleware(Guard, settings=settings, sessions=sessions, studio=studio)
    app.state.recent = recent
    return app, static
