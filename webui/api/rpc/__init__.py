"""gRPC: the same studio, by the same rights, on a port of its own (docs/api-grpc.md).

Opened only where it is asked for: a studio without grpcio never loads this folder's other files.
"""

from __future__ import annotations

import ssl

from ...errors import BadInput
from ...settings import Settings
from ...studio import Studio
from ..door import Door
from ..recent_jobs import RecentJobs


class Rpc:
    """Off while `server.grpc_port` is 0."""

    def __init__(self, studio: Studio, settings: Settings, door: Door, recent_jobs: RecentJobs):
        self._parts, self._settings = (studio, settings, door, recent_jobs), settings
        self._server = None

    async def start(self) -> None:
        """On the event loop of the page, whose jobs and sockets it shares. Raises KaikouError."""
        if self._settings.server.grpc_port:
            from .server import open_server

            self._server = await open_server(*self._parts)

    async def stop(self, grace_s: float) -> None:
        """Refuses what is new and waits that long for what is under way."""
        if self._server is not None:
            await self._server.stop(grace_s)


def check(settings: Settings) -> None:
    """Everything that can be known of the port before something slow is loaded.

    Raises BadInput: a package or a file is missing, or does not fit.
    """
    server = settings.server
    if not server.grpc_port:
        return
    try:
        from . import server as _  # noqa: F401
    except Exception as error:  # not there, or of a version that does not fit what was generated
        raise BadInput("bad_setting.no_grpc", error=error) from error
    if server.grpc_cert:
        try:
            # a key with a password is refused, not asked for
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                server.grpc_cert, server.grpc_key, password=""
            )
        except OSError as error:
            raise BadInput("bad_setting.grpc_files", error=error, param="grpc_cert") from error
