"""Nouns and chunks as JSON words, and back.

Both processes use this file; it knows no sockets.
"""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from ...types import Chunk, Prompt

Record = TypeVar("Record")


def words_of(record) -> dict:
    """A flat frozen record of webui.types; mappings and tuples become what JSON has."""
    out = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: dict(v) if isinstance(v, MappingProxyType) else v for k, v in out.items()}


def record_of(kind: type[Record], words: dict) -> Record:
    return kind(**{k: _freeze(v) for k, v in words.items()})


def _freeze(value):
    """As our records have it, whose fields are never lists or dicts."""
    if isinstance(value, list):
        return tuple(map(_freeze, value))
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


def chunk_of(words: dict, body: bytes) -> Chunk:
    return record_of(Chunk, {**words, "samples": np.frombuffer(body, np.float32)})


def words_of_prompt(prompt: Prompt) -> dict:
    """Without its bytes: they are the frame's body."""
    return {f.name: getattr(prompt, f.name) for f in fields(prompt) if f.name != "data"}


def prompt_of(words: dict, body: bytes) -> Prompt:
    return record_of(Prompt, {**words, "data": body})


def key_of(prompt: Prompt) -> str:
    """What a prompt is called between the processes."""
    return f"{prompt.engine}/{prompt.version}/{prompt.fingerprint}"
