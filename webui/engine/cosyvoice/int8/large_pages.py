"""Large memory pages for what is read whole at every step: a quarter of an id's time on a machine
that grants them. A wish, never an error.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)
MAPS = Path("/proc/self/maps")
PAGE = 2 << 20
WISH, NOW = (
    14,
    25,
)  # MADV_HUGEPAGE, MADV_COLLAPSE (Linux 6.1; older kernels do the first alone, in their own time)


@contextmanager
def large_pages() -> Iterator[None]:
    """Around the making of large arrays: anonymous memory that is new afterwards is moved to large
    pages where the system has them.
    """
    before = set(_anonymous())
    yield
    if sys.platform == "linux":
        moved = sum(_move(start, stop) for start, stop in set(_anonymous()) - before)
        log.info("%d MiB of the language model in large memory pages", moved >> 20)


def _anonymous() -> list[tuple[int, int]]:
    """Ranges of whole large pages in private memory without a file."""
    try:
        rows = [line.split() for line in MAPS.read_text().splitlines()]
    except OSError:
        return []
    spans = [
        [int(end, 16) for end in row[0].split("-")]
        for row in rows
        if row[1] == "rw-p" and len(row) == 5
    ]
    whole = [(-(-start // PAGE) * PAGE, stop // PAGE * PAGE) for start, stop in spans]
    return [(start, stop) for start, stop in whole if stop > start]


def _move(start: int, stop: int) -> int:
    """Bytes moved at once."""
    ask = ctypes.CDLL(None, use_errno=True).madvise
    ask.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    ask(start, stop - start, WISH)
    return stop - start if ask(start, stop - start, NOW) == 0 else 0
