"""grpc.health.v1.Health: "" is this server, the name of a service is whether it can speak yet.

`Watch` is not implemented, and says so as the protocol wants it: a program asks again.
"""

from __future__ import annotations

from grpc_health.v1.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from grpc_health.v1.health_pb2_grpc import HealthServicer

from ...errors import NotFound
from ...studio import Studio
from .call import Call
from .status import Unimplemented

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


class HealthService(HealthServicer):
    def __init__(self, studio: Studio, services: tuple[str, ...]):
        self._studio, self._services = studio, services

    def _answer(self, service: str) -> HealthCheckResponse:
        is_serving = not service or self._studio.is_ready()
        return HealthCheckResponse(status=SERVING if is_serving else NOT_SERVING)

    async def Check(self, request: HealthCheckRequest, call: Call):  # noqa: N802
        if request.service not in ("", *self._services):
            raise NotFound("not_found.address")
        return self._answer(request.service)

    async def List(self, request: HealthListRequest, call: Call):  # noqa: N802
        return HealthListResponse(statuses={s: self._answer(s) for s in ("", *self._services)})

    async def Watch(self, request: HealthCheckRequest, call: Call):  # noqa: N802
        raise Unimplemented()
