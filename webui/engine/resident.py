"""The resident engine: one warm engine per process, started in the background, replaced without dropping a running stream.

Knows engines only through engine/base.py. A stream holds a lease; an engine that was replaced is closed when its last lease ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..errors import KaikouError, NotReady
from ..types import Health
from .base import Engine

log = logging.getLogger(__name__)


class Lease:
    """Keeps one engine open while something uses it. `release` is idempotent."""

    def __init__(self, seat: _Seat):
        self._seat, self._open = seat, True
        self.engine = seat.engine

    def release(self) -> None:
        seat, is_mine = self._seat, False
        with seat.lock:
            is_mine, self._open = self._open, False
            seat.leases -= is_mine
            is_last = is_mine and seat.retired and not seat.leases
        if is_last:
            seat.engine.close()


class _Seat:
    def __init__(self, engine: Engine, lock: threading.Lock):
        self.engine, self.lock, self.leases, self.retired = engine, lock, 0, False


class Resident:
    """`on_ready(engine)` is called in the starting thread each time an engine takes over."""

    def __init__(self, on_ready: Callable[[Engine], None] = lambda engine: None):
        self._lock = threading.Lock()
        self._seat: _Seat | None = None
        self._coming: Engine | None = None
        self._failure: KaikouError | None = None
        self._on_ready = on_ready
        self._closed = False

    def start(self, *makers: Callable[[], Engine]) -> threading.Thread:
        """Build and warm engines in the background, one after the other; the one in charge keeps speaking until the next is ready."""
        thread = threading.Thread(target=lambda: [self._bring_up(make) for make in makers], name="engine-start", daemon=True)
        thread.start()
        return thread

    def _bring_up(self, make: Callable[[], Engine]) -> None:
        try:
            engine = make()
            with self._lock:
                self._coming, self._failure = engine, None
            engine.start()
        except KaikouError as error:
            self._fail(error)
        except Exception as error:  # an engine's own bug must not leave the page waiting for ever
            log.exception("engine failed to start")
            self._fail(NotReady(f"The engine could not start: {error}.", f"引擎无法启动：{error}。", code="broken"))
        else:
            self._take_over(engine)

    def _fail(self, error: KaikouError) -> None:
        with self._lock:
            engine, self._coming, self._failure = self._coming, None, error
        if engine is not None:
            engine.close()

    def _take_over(self, engine: Engine) -> None:
        """Whoever is told knows the engine before anybody can lease it."""
        if not self._closed:
            self._on_ready(engine)
        with self._lock:
            old, self._seat, self._coming = self._seat, _Seat(engine, self._lock), None
            is_late = self._closed
            if old is not None:
                old.retired = True
            is_idle = old is not None and not old.leases
        if is_idle:
            old.engine.close()
        if is_late:
            engine.close()

    def lease(self) -> Lease:
        """Raises NotReady until the first engine has spoken its warm-up sentence."""
        with self._lock:
            if self._seat is None or self._closed:
                raise self._failure or NotReady("The engine is still starting. Please wait a moment.", "引擎还在启动，请稍候。", retry_after_s=2)
            self._seat.leases += 1
            return Lease(self._seat)

    def health(self) -> Health:
        with self._lock:
            seat, coming, failure = self._seat, self._coming, self._failure
        if seat is not None:
            return seat.engine.health()
        if failure is not None:
            return Health("broken", failure.en, failure.zh)
        return coming.health() if coming is not None else Health("starting")

    def coming(self) -> Health | None:
        """Progress of an engine on its way while another one speaks; None when nothing is coming."""
        with self._lock:
            return self._coming.health() if self._coming is not None else None

    def failure(self) -> KaikouError | None:
        return self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            engines = [e for e in (self._seat and self._seat.engine, self._coming) if e is not None]
        for engine in engines:
            engine.close()
