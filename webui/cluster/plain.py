"""The fleet of one machine, without Ray: one replica in this process, whose engine and worker
processes several studios share.
"""

from __future__ import annotations

from collections.abc import Callable

import uvicorn

from ..engine.base import Engine
from ..settings import Settings
from .replica import Replica, build_app
from .serve import FleetOptions


def run(make_engine: Callable[[], Engine], settings: Settings, options: FleetOptions) -> None:
    """Serve until the program is ended."""
    engine = make_engine()
    engine.start()
    try:
        shared = options.make_shared()
        replica = Replica(engine, settings.limits.stall_s, options.key, options.streams, shared)
        try:
            uvicorn.run(
                build_app(replica),
                host=options.host,
                port=options.port,
                loop="asyncio",
                ws="websockets-sansio",
                log_level="warning",
            )
        finally:
            replica.scheduler.close()
    finally:
        engine.close()
