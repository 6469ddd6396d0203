"""What a stopped or failed request left behind for the one that continues it: whole sentences, and
which one broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Continuation:
    """The sound of a request up to the sentence where it broke off, which is the first one that is
    spoken now.

    marks: (segment, first sample) of the segments in `pcm`, which is s16le. replaces: ids of the
      takes that end there.
    """

    first_segment: int
    pcm: bytes
    marks: tuple[tuple[int, int], ...]
    replaces: tuple[str, ...]


def continuation_of(marks: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """(segment, first sample) of the one that was under way: a later chunk is the only sign that a
    segment was whole.
    """
    return marks[-1] if marks else (0, 0)
