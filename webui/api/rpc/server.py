"""The gRPC server: its services, its port and its limits."""

from __future__ import annotations

import logging
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ...errors import KaikouError
from ...proto import kaikou_pb2, kaikou_pb2_grpc
from ...settings import Server, Settings
from ...studio import Studio
from ..door import Door
from ..recent_jobs import RecentJobs
from .guard import Guard
from .health import HealthService
from .speech import SpeechService
from .voices import VoicesService

log = logging.getLogger(__name__)
SERVICES = tuple(s.full_name for s in kaikou_pb2.DESCRIPTOR.services_by_name.values())
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
BEAT_MS = 20_000  # a connection that does not answer for that long, twice, is closed


async def open_server(
    studio: Studio, settings: Settings, door: Door, recent_jobs: RecentJobs
) -> grpc.aio.Server:
    """Raises KaikouError when the port is taken."""
    limits = settings.limits
    server = grpc.aio.server(
        interceptors=[Guard(studio, door, limits)],
        options=[
            ("grpc.so_reuseport", 0),  # or a second studio would share the port unnoticed
            ("grpc.max_receive_message_length", limits.max_body_mb << 20),
            ("grpc.http2.min_ping_interval_without_data_ms", BEAT_MS // 4),  # of clients' own beats
            ("grpc.keepalive_time_ms", BEAT_MS),
            ("grpc.keepalive_timeout_ms", BEAT_MS),
        ],
        maximum_concurrent_rpcs=limits.sockets,
    )
    kaikou_pb2_grpc.add_SpeechServicer_to_server(
        SpeechService(studio, recent_jobs, limits.idle_s), server
    )
    kaikou_pb2_grpc.add_VoicesServicer_to_server(VoicesService(studio), server)
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(studio, SERVICES), server)
    reflection.enable_server_reflection((*SERVICES, HEALTH, reflection.SERVICE_NAME), server)
    address = _bind(server, settings.server)
    await server.start()
    log.info("gRPC at %s", address)
    return server


def _bind(server: grpc.aio.Server, server_settings: Server) -> str:
    host = f"[{server_settings.host}]" if ":" in server_settings.host else server_settings.host
    address = f"{host}:{server_settings.grpc_port}"
    try:
        if server_settings.grpc_cert:
            pair = (
                Path(server_settings.grpc_key).read_bytes(),
                Path(server_settings.grpc_cert).read_bytes(),
            )
            server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            server.add_insecure_port(address)
    except RuntimeError:
        raise KaikouError("fault.grpc_port_taken", address=address) from None
    return address
