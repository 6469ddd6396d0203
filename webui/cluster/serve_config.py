"""The fleet for `serve deploy` and Kubernetes' RayService, which start an application by the name
of its builder: `import_path: webui.cluster.serve_config:build`. Imports no Ray itself.

The engine is chosen by KAIKOU_* as for run.sh; the address is Serve's own (`http_options`).
"""

from __future__ import annotations

from functools import partial

from ..errors import BadInput
from ..settings import load
from .__main__ import make_engine, replicas
from .serve import FleetOptions, application


def build(arguments: dict):
    """arguments: replicas ("1..3"), gpus_per_replica, streams, as the flags of `python -m
    webui.cluster serve`. Raises BadInput.
    """
    settings = load()
    if not settings.engine.fleet_key:  # machines of a cluster reach each other's addresses
        raise BadInput("bad_setting.fleet_without_key", param="fleet_key")
    low, high = replicas(str(arguments.get("replicas", "1")))
    options = FleetOptions(
        host="",  # Serve's own
        port=0,
        min_replicas=low,
        max_replicas=high,
        gpus=float(arguments.get("gpus_per_replica", 0)),
        streams=int(arguments.get("streams", FleetOptions.streams)),
        key=settings.engine.fleet_key,
    )
    return application(partial(make_engine, settings), settings.limits.stall_s, options)
