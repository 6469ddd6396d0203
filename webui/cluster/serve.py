"""The fleet as an application of Ray Serve: replicas behind its HAProxy, scaled by what their
listeners want. The only module that imports Ray.
"""

# Annotations are objects here, not strings: Ray sends the class to its replicas by value, where
# FastAPI could not find what a string names.
import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI, Request, WebSocket

from ..engine.base import Engine
from ..settings import Settings
from .messages import PATH
from .replica import Replica, about_of
from .scaling import BUSY_SHARE

NAME = "kaikou"
AGAIN_S = (0.2, 0.4, 0.8, 1.6)  # waits between questions while a replica that died is in the list
CALL_S = 10.0  # all replicas together, before a question about the fleet is given up
LONGEST_S = 900.0  # of one utterance: a replica that leaves has this long to end its streams
CALLS = 16  # questions that a replica answers beside its streams, such as how the fleet is
UPSCALE_S = 2.0
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FleetOptions:
    """min_replicas..max_replicas: as many as the streams need. streams: open at once on a replica;
    one more is refused.
    """

    host: str
    port: int
    min_replicas: int = 1
    max_replicas: int = 1
    gpus: float = 0.0
    cpus: float = 1.0
    streams: int = 8
    key: str = ""
    address: str = ""  # of a Ray cluster; "" = one on this machine that ends with this program
    downscale_s: float = 30.0  # few streams for so long before a replica leaves
    make_shared: Callable[[], object] = lambda: None  # the shared cache, made in each replica


def environment() -> dict[str, str]:
    """What Ray must find before it is imported: HAProxy carries the sockets, since Serve's own
    proxy adds 10 ms to a first chunk; nothing is reported to anybody.
    """
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # on a busy machine a proxy that needs longer would be killed and begun anew for ever
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    }


def application(make_engine, stall_s: float, options: FleetOptions):
    """make_engine() -> Engine, called in each replica; must be importable there."""
    from ray import serve
    from ray.exceptions import RayActorError

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @serve.deployment(
        name=NAME,
        ray_actor_options={"num_gpus": options.gpus, "num_cpus": options.cpus},
        # the replica itself refuses streams it has no room for: a queue here would make them time
        # out, and would keep questions about the fleet waiting behind them
        max_ongoing_requests=2 * options.streams + CALLS,
        max_queued_requests=options.streams,
        graceful_shutdown_timeout_s=LONGEST_S,
        health_check_period_s=2.0,
        health_check_timeout_s=10.0,
        autoscaling_config={
            "min_replicas": options.min_replicas,
            "max_replicas": options.max_replicas,
            "target_ongoing_requests": BUSY_SHARE * options.streams,
            "policy": {"policy_function": "webui.cluster.scaling:replicas_wanted"},
            "upscale_delay_s": UPSCALE_S,
            "downscale_delay_s": options.downscale_s,
            "metrics_interval_s": 1.0,
            "look_back_period_s": 4.0,
        },
    )
    @serve.ingress(app)
    class FleetReplica:
        def __init__(self):
            self._engine: Engine = make_engine()
            self._engine.start()
            shared = options.make_shared()
            self._replica = Replica(self._engine, stall_s, options.key, options.streams, shared)

        def check_health(self) -> None:
            """Ray replaces a replica whose engine is broken for good."""
            health = self._engine.health()
            if health.state == "broken":
                raise RuntimeError(health.reason)

        async def record_autoscaling_stats(self) -> dict[str, float]:
            """What `scaling` is given the means of."""
            load = self._replica.load()
            return {name: load[name] for name in ("wanting", "capacity")}

        def load(self, cell: str) -> dict:
            return self._replica.load(cell)

        def forget_here(self, fingerprint: str) -> str:
            return self._replica.forget(fingerprint)

        async def _all(self, method: str, argument: str) -> list:
            """The answers of all replicas, asked again until Ray knows which of them died."""
            for wait_s in (*AGAIN_S, None):
                answers = serve.get_deployment_handle(NAME, NAME).broadcast(method, argument)
                try:
                    return await answers.results_async(timeout_s=CALL_S)
                except RayActorError:
                    if wait_s is None:
                        raise
                    await asyncio.sleep(wait_s)

        @app.websocket(PATH)
        async def engine(self, socket: WebSocket):
            await self._replica.serve(socket)

        @app.get("/about")
        async def about(self, request: Request, cell: str = ""):
            self._replica.check_key(request.headers)
            return about_of(self._replica, await self._all("load", cell))

        @app.post("/forget")
        async def forget(self, request: Request, fingerprint: str):
            """Answers only when every replica has confirmed it."""
            self._replica.check_key(request.headers)
            return {"replicas": await self._all("forget_here", fingerprint)}

        def __del__(self):
            self._engine.close()

    return FleetReplica.bind()


def run(make_engine, settings: Settings, options: FleetOptions) -> None:
    """Start the fleet and serve until the program is ended."""
    os.environ.update(environment())
    start(make_engine, settings.limits.stall_s, options)
    log.info("the fleet listens at %s:%d", options.host, options.port)
    threading.Event().wait()


def start(make_engine, stall_s: float, options: FleetOptions) -> None:
    import ray
    from ray import serve

    ray.init(address=options.address or "local", log_to_driver=False, include_dashboard=False)
    serve.start(http_options={"host": options.host, "port": options.port})
    serve.run(application(make_engine, stall_s, options), name=NAME, route_prefix="/")
