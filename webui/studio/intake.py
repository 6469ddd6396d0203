"""Recordings that come from outside: how often each visitor may send one, and how many are read at
the same time. Blind to what is in them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import Busy
from .admission import Buckets

UNLIMITED = 1e9
MAX_AT_ONCE = 2  # a clip takes some 30 MB while it is looked at
MAX_WAITING_BYTES = 64 << 20  # of files whose turn has not come


class Intake:
    """Thread-safe.

    The rate is of each owner; the rest bounds what all of them take, however many visits somebody
    opens.
    """

    def __init__(self, per_minute: float = UNLIMITED):
        self._rate, self._slots = Buckets(per_minute), threading.BoundedSemaphore(MAX_AT_ONCE)
        self._lock, self._waiting_bytes = threading.Lock(), 0

    @contextmanager
    def admit(self, owner: str, n_bytes: int) -> Iterator[None]:
        """While one recording is decoded and looked at; waits for its turn. Raises Busy."""
        self._rate.check(owner)
        with self._lock:
            if self._waiting_bytes and self._waiting_bytes + n_bytes > MAX_WAITING_BYTES:
                raise Busy("too_many_uploads", retry_after_s=5)
            self._waiting_bytes += n_bytes
        try:
            self._slots.acquire()
        finally:
            with self._lock:
                self._waiting_bytes -= n_bytes
        try:
            yield
        finally:
            self._slots.release()
