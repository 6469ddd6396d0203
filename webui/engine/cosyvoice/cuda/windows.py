"""Which windows of frames the vocoder decodes, when a window may only have certain lengths.

Integers in, integers out.

A window is never padded, because the vocoder hears where its input ends. It reaches further back
where there is more past than needed; a short utterance between two lengths takes two windows that
overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..vocoder import ContextWindow


@dataclass(frozen=True)
class Window:
    """Decode `start .. start + length`, give `begin .. end` of it (frames of the utterance)."""

    start: int
    length: int
    begin: int
    end: int


def check(lengths: tuple[int, ...], reach: ContextWindow) -> None:
    """Raises ValueError when some utterance could not be covered: up to left + held every length is
    needed, above it two windows of one length must overlap by as much before the next length comes.
    """
    margin = reach.left + max(reach.held, reach.first_held)
    if not lengths or lengths[0] != 1 or any(b <= a for a, b in pairwise(lengths)):
        raise ValueError("window lengths must ascend from 1")
    for short, long in pairwise(lengths):
        if long > short + 1 and 2 * short < long - 1 + margin:
            raise ValueError(
                f"no window fits an utterance of {long - 1} frames: put a length between {short}"
                f" and {long}"
            )


def cover(
    emitted: int, end: int, final: bool, reach: ContextWindow, lengths: tuple[int, ...]
) -> Iterator[Window]:
    """The windows that give all frames from `emitted` on which are final when the frames up to
    `end` are known.
    """
    while True:
        held = reach.held if emitted else reach.first_held
        ready = end if final else end - held
        if ready <= emitted:
            return
        first = max(0, emitted - reach.left)
        length = next((n for n in lengths if n >= end - first), lengths[-1])
        if length < end - first:  # more at once than the longest window
            window = Window(first, length, emitted, first + length - reach.held)
        elif length <= end:
            window = Window(end - length, length, emitted, ready)
        else:  # between two lengths: the start now, the rest in the next round
            length = max(n for n in lengths if n <= end)
            window = Window(0, length, emitted, length - held)
        yield window
        emitted = window.end
