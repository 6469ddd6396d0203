"""The fleet for `serve deploy` and Kubernetes' RayService, which start an application by the name
of its builder: `import_path: webui.cluster.serve_config:build`. Imports no Ray itself.

The engine is chosen by KAIKOU_* as for run.sh; the address is Serve's own (`http_options`).
"""

from __future__ import annotations

from functools import partial

from ..app import shared_prompts
from ..errors import BadInput
from ..settings import load
from .__main__ import make_engine, replicas
from .serve import FleetOptions, application

ARGUMENTS = {"replicas": str, "gpus_per_replica": float, "streams": int}


def build(arguments: dict):
    """arguments: of ARGUMENTS, as the flags of `python -m webui.cluster serve`. Raises BadInput."""
    settings = load()
    if not settings.engine.fleet_key:  # machines of a cluster reach each other's addresses
        raise BadInput("bad_setting.fleet_without_key", param="fleet_key")
    values = {name: _value(name, value) for name, value in arguments.items()}
    low, high = replicas(values.get("replicas", "1"))
    options = FleetOptions(
        host="",  # Serve's own
        port=0,
        min_replicas=low,
        max_replicas=high,
        gpus=values.get("gpus_per_replica", 0.0),
        streams=values.get("streams", FleetOptions.streams),
        key=settings.engine.fleet_key,
        make_shared=partial(shared_prompts, settings),
    )
    return application(partial(make_engine, settings), settings.limits.stall_s, options)


def _value(name: str, value: object) -> str | float | int:
    if name not in ARGUMENTS:
        raise BadInput("bad_setting.unknown", where="args", names=sorted(ARGUMENTS), param=name)
    try:
        return ARGUMENTS[name](value)
    except (ValueError, TypeError) as error:
        raise BadInput("bad_setting.value", value=str(value), param=name) from error
