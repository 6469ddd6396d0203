"""Each file against the published form of its kind, by the tools that know it. Nothing is asked of
the network.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import kubernetes_validate

from .files import manifests, pods

KUBERNETES = "1.37"
# KubeRay's own description is a file of a megabyte that no package holds: what these manifests use
# of its RayService, from its reference of ray.io/v1. Pods inside are examined as Kubernetes' own.
_GROUP = {
    "type": "object",
    "required": ["rayStartParams", "template"],
    "additionalProperties": False,
    "properties": {
        "groupName": {"type": "string"},
        "replicas": {"type": "integer", "minimum": 0},
        "minReplicas": {"type": "integer", "minimum": 0},
        "maxReplicas": {"type": "integer", "minimum": 1},
        "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
        "template": {"type": "object", "required": ["spec"]},
    },
}
RAY_SERVICE = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayService"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["serveConfigV2", "rayClusterConfig"],
            "additionalProperties": False,
            "properties": {
                "serveConfigV2": {"type": "string"},
                "rayClusterConfig": {
                    "type": "object",
                    "required": ["rayVersion", "headGroupSpec", "workerGroupSpecs"],
                    "additionalProperties": False,
                    "properties": {
                        "rayVersion": {"type": "string"},
                        "authOptions": {
                            "type": "object",
                            "required": ["mode"],
                            "additionalProperties": False,
                            "properties": {"mode": {"enum": ["disabled", "token"]}},
                        },
                        "gcsFaultToleranceOptions": {
                            "type": "object",
                            "required": ["redisAddress"],
                            "additionalProperties": False,
                            "properties": {
                                "redisAddress": {"type": "string"},
                                "redisPassword": {"type": "object"},
                                "externalStorageNamespace": {"type": "string"},
                            },
                        },
                        "headGroupSpec": _GROUP,
                        "workerGroupSpecs": {
                            "type": "array",
                            "items": _GROUP | {"required": [*_GROUP["required"], "groupName"]},
                        },
                    },
                },
            },
        },
    },
}


def tool(*command: str | Path) -> Iterator[str]:
    """What a program of this environment finds; nothing where it is content."""
    program = Path(sys.executable).parent / command[0]
    run = subprocess.run([program, *command[1:]], capture_output=True, text=True)
    if run.returncode:
        yield f"{command[0]}: {(run.stdout + run.stderr).strip()}"


def check(folder: Path) -> Iterator[str]:
    for part in (check_image, check_compose, check_manifests):
        yield from part(folder)


def check_image(folder: Path) -> Iterator[str]:
    yield from tool("hadolint", "--failure-threshold", "warning", folder / "Dockerfile")


def check_compose(folder: Path) -> Iterator[str]:
    schema = ("--builtin-schema", "vendor.compose-spec")
    yield from tool("check-jsonschema", *schema, folder / "compose.yaml")


def check_manifests(folder: Path) -> Iterator[str]:
    for name, resource in manifests(folder).items():
        if resource["kind"] == "RayService":
            yield from _problems(name, resource)
            for pod in pods(resource):
                body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
                yield from _kubernetes(f"{name} pod", body)
        else:
            yield from _kubernetes(name, resource)


def _kubernetes(name: str, resource: dict) -> Iterator[str]:
    try:
        kubernetes_validate.validate(resource, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{name}: {'.'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        yield f"{name}: {error.message}"


def _problems(name: str, resource: dict) -> Iterator[str]:
    for error in jsonschema.Draft202012Validator(RAY_SERVICE).iter_errors(resource):
        yield f"{name}: {error.json_path}: {error.message}"
