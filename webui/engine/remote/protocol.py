"""Errors, nouns and chunks as JSON words, and back.

Both processes use this file; it knows no sockets.
"""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from ... import errors
from ...errors import EngineFault, KaikouError
from ...types import Chunk, Prompt

KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, KaikouError)
}
Record = TypeVar("Record")


def words_of_error(error: KaikouError) -> dict:
    kind = next(k.__name__ for k in type(error).__mro__ if KINDS.get(k.__name__) is k)
    return {
        "kind": kind,
        "en": error.en,
        "zh": error.zh,
        "code": error.code,
        "param": error.param,
        "retry_after_s": error.retry_after_s,
    }


def error_of(words: dict) -> KaikouError:
    """The same class, sentences and code on this side; a class that is not in the list becomes
    EngineFault.
    """
    more = {k: words.get(k) for k in ("code", "param", "retry_after_s")}
    return KINDS.get(words.get("kind", ""), EngineFault)(
        str(words.get("en", "")), str(words.get("zh", "")), **more
    )


def words_of(record) -> dict:
    """A flat frozen record of webui.types; mappings and tuples become what JSON has."""
    out = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: dict(v) if isinstance(v, MappingProxyType) else v for k, v in out.items()}


def record_of(kind: type[Record], words: dict) -> Record:
    return kind(**{k: _frozen(v) for k, v in words.items()})


def _frozen(value):
    """As our records have it, whose fields are never lists or dicts."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return MappingProxyType(value) if isinstance(value, dict) else value


def words_of_chunk(chunk: Chunk) -> tuple[dict, memoryview]:
    samples = np.ascontiguousarray(chunk.samples, np.float32)
    words = {f.name: getattr(chunk, f.name) for f in fields(chunk) if f.name != "samples"}
    words |= {
        "segment": int(chunk.segment),
        "start": int(chunk.start),
        "last": bool(chunk.last),
        "timings": {k: float(v) for k, v in chunk.timings.items()},
    }
    return words, memoryview(samples)


def chunk_of(words: dict, body: bytearray) -> Chunk:
    return record_of(Chunk, {**words, "samples": np.frombuffer(body, np.float32)})


def words_of_prompt(prompt: Prompt) -> dict:
    """Without its bytes: they are the frame's body."""
    return {f.name: getattr(prompt, f.name) for f in fields(prompt) if f.name != "data"}


def prompt_of(words: dict, body: bytearray) -> Prompt:
    return record_of(Prompt, {**words, "data": bytes(body)})


def key_of(prompt: Prompt) -> str:
    """What a prompt is called between the processes."""
    return f"{prompt.engine}/{prompt.version}/{prompt.fingerprint}"
