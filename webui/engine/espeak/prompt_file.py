"""A voice as bytes: Profile and Mappings to and from safetensors.

No pickle; the arrays and one JSON text.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import numpy as np
from safetensors.numpy import load, save

from .voice_mapping import Mapping, Profile

_HALF = ("voiced",)  # stored as float16: a third of the bytes, far below what is heard


def pack(profile: Profile, mappings: dict[str, Mapping]) -> bytes:
    arrays: dict[str, np.ndarray] = {}
    plain: dict[str, dict] = {}
    for prefix, part in {"profile": profile, **mappings}.items():
        plain[prefix] = {}
        for name, value in asdict(part).items():
            if isinstance(value, np.ndarray):
                arrays[f"{prefix}.{name}"] = np.ascontiguousarray(
                    value, dtype=np.float16 if name in _HALF else np.float32
                )
            else:
                plain[prefix][name] = value
    arrays["plain"] = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    return save(arrays)


def unpack(data: bytes) -> tuple[Profile, dict[str, Mapping]]:
    arrays = load(data)
    plain = json.loads(arrays.pop("plain").tobytes())

    def build(prefix: str, kind):
        values = dict(plain[prefix])
        for f in fields(kind):
            if f.name not in values:
                values[f.name] = arrays[f"{prefix}.{f.name}"].astype(np.float32)
        if "notes" in values:
            values["notes"] = tuple(values["notes"])
        return kind(**values)

    return build("profile", Profile), {k: build(k, Mapping) for k in plain if k != "profile"}
