"""A refusal names the field that the caller sent, not the one it becomes here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ...errors import KaikouError


@contextmanager
def with_field_names(public_names: Mapping[str, str]) -> Iterator[None]:
    """theirs: our name of a field -> the caller's."""
    try:
        yield
    except KaikouError as error:
        error.param = public_names.get(error.param or "", error.param)
        raise
