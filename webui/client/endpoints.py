"""Several studios that may be asked: which one is next, and which are left alone for a while."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from ..errors import KaikouError
from .errors import is_passing

REST_S, LONGEST_REST_S = 1.0, 30.0  # of a studio that failed, doubled while it goes on failing
Choice = Literal["random", "least_busy"]


class Endpoint:
    """`link`: how one studio is spoken to. `n_open`: requests of this client that it has now."""

    def __init__(self, link: Any):
        self.link, self.n_open = link, 0
        self.rests_until_s, self._n_failed = 0.0, 0

    def note(self, error: KaikouError | None, now_s: float) -> None:
        """How a request ended there."""
        if error is None:
            self.rests_until_s, self._n_failed = 0.0, 0
        elif is_passing(error):
            usual_s = min(LONGEST_REST_S, REST_S * 2 ** min(self._n_failed, 10))
            self.rests_until_s = now_s + max(error.retry_after_s or 0.0, usual_s)
            self._n_failed += 1


class Endpoints:
    """choose: "random", or "least_busy": where this client has the fewest requests open.

    May be used from several threads.
    """

    def __init__(
        self, links: Sequence[Any], choose: Choice, clock: Callable[[], float] = time.monotonic
    ):
        if not links or choose not in ("random", "least_busy"):
            raise ValueError("at least one address, and choose is random or least_busy")
        self._all = [Endpoint(link) for link in links]
        self._choose, self._clock, self._lock = choose, clock, threading.Lock()

    @contextmanager
    def lease(self, stay_at: Endpoint | None = None) -> Iterator[Endpoint]:
        """For one request. stay_at: a stream that has begun goes on where it was."""
        with self._lock:
            endpoint = stay_at or self._pick()
            endpoint.n_open += 1
        error = None
        try:
            yield endpoint
        except KaikouError as failure:
            error = failure
            raise
        finally:
            with self._lock:
                endpoint.n_open -= 1
                endpoint.note(error, self._clock())

    def _pick(self) -> Endpoint:
        """Of those that do not rest; else the one that rested most."""
        now = self._clock()
        ready = [e for e in self._all if e.rests_until_s <= now]
        if not ready:
            return min(self._all, key=lambda e: e.rests_until_s)
        if self._choose == "least_busy":
            fewest = min(e.n_open for e in ready)
            ready = [e for e in ready if e.n_open == fewest]
        return random.choice(ready)

    def has_another(self) -> bool:
        """Somebody else can be asked at once."""
        now = self._clock()
        return len(self._all) > 1 and any(e.rests_until_s <= now for e in self._all)
