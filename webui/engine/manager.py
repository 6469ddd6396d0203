"""The resident engine: one warm engine per process, started in the background, replaced without
dropping a running stream.

Knows engines only through engine/base.py. A stream holds a lease; an engine that was replaced is
closed when its last lease ends. When one breaks for good, the one it had replaced steps in, and the
broken one may be tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from ..errors import KaikouError, NotReady
from ..messages import Message
from ..types import Health
from .base import Engine

log = logging.getLogger(__name__)
Maker = Callable[[], Engine]


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
            _close(seat.engine)


class _Seat:
    """before: makes the engine that this one replaced, and that steps in for it."""

    def __init__(self, engine: Engine, lock: threading.Lock, make: Maker, before: Maker | None):
        self.engine, self.lock, self.leases, self.retired = engine, lock, 0, False
        self.make, self.before = make, before
        self.is_lost = False  # broken, and its place is being taken


class Missing:
    """An engine that failed, at its start or for good while it served: the name it goes by, how it
    is made, and why it failed.
    """

    def __init__(self, engine: Engine | None, make: Maker, error: KaikouError):
        self.name, self.make, self.error = name_of(engine), make, error.copy()


class EngineManager:
    """`on_ready(engine)` is called in the starting thread each time an engine takes over; when it
    raises, the engine has failed. An engine may have `on_broken`, to be set: it calls that with its
    error, in a thread of its own, when it has served and will not again. It may have `on_change`
    too: called when its health is another.

    `on_change()` is called, from any thread, when `health`, `next_health`, `failure` or whoever
    speaks may be another.
    """

    def __init__(
        self,
        on_ready: Callable[[Engine], None] = lambda engine: None,
        on_change: Callable[[], object] = lambda: None,
    ):
        self._lock = threading.Lock()
        self._seat: _Seat | None = None
        self._next: Engine | None = None
        self._missing: Missing | None = None
        self._on_ready, self._on_change = on_ready, on_change
        self._closed = False
        self._due: list[Maker] = []  # on their way, the first of them now

    def start(self, *makers: Maker) -> threading.Thread:
        """Build and warm engines in the background, one after the other; the one in charge keeps
        speaking until the next is ready.
        """
        with self._lock:
            self._due += makers
        thread = threading.Thread(
            target=self._bring_all, args=(makers,), name="engine-start", daemon=True
        )
        thread.start()
        return thread

    def replace(self, make: Maker) -> bool:
        """Another engine shall speak: it is brought up while the one in charge goes on, and no
        other way when it fails. False: one is on its way.
        """
        with self._lock:
            if self._due or self._closed or (self._seat is not None and self._seat.is_lost):
                return False
            self._missing = None
            self._due.append(make)
        self._on_change()
        threading.Thread(
            target=self._bring_all, args=((make,),), name="engine-start", daemon=True
        ).start()
        return True

    def _bring_all(self, makers: Iterable[Maker]) -> None:
        for make in makers:
            try:
                self._bring_up(make)
            finally:  # else nothing could ever be replaced again
                with self._lock:
                    self._due.remove(make)
                self._on_change()

    def made_by(self) -> Maker | None:
        """What the engine in charge came of."""
        seat = self._seat
        return seat.make if seat is not None else None

    def failed_by(self) -> Maker | None:
        """What the engine that failed last came of."""
        missing = self._missing
        return missing.make if missing is not None else None

    def next_by(self) -> Maker | None:
        """What the engine on its way comes of."""
        due = self._due
        return due[0] if due else None

    def again(self) -> bool:
        """The engine that failed is made anew, with all its chances; the one in charge keeps
        speaking meanwhile. False: none has, or it comes already.
        """
        with self._lock:
            missing = self._missing
            if missing is None or self._next is not None or self._closed:
                return False
            self._missing = None
        self.start(missing.make)
        return True

    def _bring_up(self, make: Maker, steps_in: bool = False) -> None:
        engine = None
        try:
            engine = make()
            with self._lock:
                self._next = engine
                self._missing = self._missing if steps_in else None
            if hasattr(engine, "on_broken"):
                engine.on_broken = lambda error: self._broke(engine, error)
            if hasattr(engine, "on_change"):
                engine.on_change = self._on_change
            self._on_change()
            engine.start()
            if not self._closed:
                self._on_ready(
                    engine
                )  # whoever is told knows the engine before anybody can lease it
        except KaikouError as error:
            self._fail(engine, make, error, steps_in)
        except (
            Exception
        ) as error:  # a bug, the engine's or ours, must not leave the page waiting for ever
            log.exception("engine failed to start")
            self._fail(engine, make, NotReady("broken.start", error=error), steps_in)
        else:
            self._take_over(engine, make, steps_in)

    def _fail(self, engine: Engine | None, make: Maker, error: KaikouError, steps_in: bool) -> None:
        log.error(
            "an engine is not to be had (%s): %s", name_of(engine) or "it has no name yet", error.en
        )
        with self._lock:
            self._next = None
            if not steps_in:  # else what it stands in for is what is missing
                self._missing = Missing(engine, make, error)
            if steps_in and self._seat is not None:
                self._seat.is_lost = False
        self._on_change()
        if engine is not None:
            _close(engine)

    def _take_over(self, engine: Engine, make: Maker, steps_in: bool) -> None:
        with self._lock:
            old = self._seat
            before = (
                None if old is None or steps_in else old.before if old.make is make else old.make
            )
            self._seat, self._next = _Seat(engine, self._lock, make, before), None
            is_late = self._closed
            if old is not None:
                old.retired = True
            is_idle = old is not None and not old.leases
        self._on_change()
        if is_idle:
            _close(old.engine)
        if is_late:
            _close(engine)
        elif (
            hasattr(engine, "on_broken") and (health := engine.health()).state == "broken"
        ):  # between its start and now
            self._broke(engine, NotReady(Message(health.reason, health.reason_zh), code="broken"))

    def _broke(self, engine: Engine, error: KaikouError) -> None:
        with self._lock:
            seat = self._seat
            if self._closed or seat is None or seat.engine is not engine or seat.is_lost:
                return
            self._missing = Missing(engine, seat.make, error)
            seat.is_lost, before = seat.before is not None, seat.before
        self._on_change()
        if before is not None:
            log.error("%s is lost; the engine before it steps in", self._missing.name)
            threading.Thread(
                target=self._bring_up, args=(before, True), name="engine-start", daemon=True
            ).start()

    def lease(self) -> Lease:
        """Raises NotReady until the first engine has spoken its warm-up sentence, and while one
        steps in for one that broke.
        """
        with self._lock:
            if self._seat is None or self._closed:
                raise self.failure() or NotReady("notready.starting_wait", retry_after_s=2)
            if self._seat.is_lost:
                raise NotReady("notready.replacing", retry_after_s=2)
            self._seat.leases += 1
            return Lease(self._seat)

    def health(self) -> Health:
        with self._lock:
            seat, next_engine, failure = self._seat, self._next, self.failure()
        if seat is not None:
            return seat.engine.health()
        if failure is not None:
            return Health("broken", failure.en, failure.zh)
        return next_engine.health() if next_engine is not None else Health("starting")

    def figures(self) -> dict[str, float]:
        """Of whoever speaks, where it has any."""
        seat = self._seat
        has_any = seat is not None and hasattr(seat.engine, "figures")
        return seat.engine.figures() if has_any else {}

    def next_health(self) -> Health | None:
        """Progress of an engine on its way while another one speaks, or has failed; None when
        nothing is coming but one that steps in.
        """
        with self._lock:
            steps_in = self._seat is not None and self._seat.is_lost
            return self._next.health() if self._next is not None and not steps_in else None

    def is_restarting(self) -> bool:
        """The engine in charge had served, lost its process, and is on its way back."""
        seat = self._seat
        return seat is not None and seat.engine.health().state == "starting"

    def is_handing_over(self) -> bool:
        """The engine in charge is lost for good, and the one before it is on its way."""
        seat = self._seat
        return seat is not None and seat.is_lost

    def failure(self) -> KaikouError | None:
        """Why the engine that failed last is not there; a new object each time, so it may be
        raised.
        """
        missing = self._missing
        return missing.error.copy() if missing is not None else None

    def can_try_again(self) -> bool:
        return self._missing is not None and self._next is None

    def absent(self, name: str) -> KaikouError | None:
        """Why the engine of that name does not speak though it should: it failed, or is on its way.

        None when it is none of ours.
        """
        with self._lock:
            missing, next_engine = self._missing, self._next
        if missing is not None and missing.name == name:
            return missing.error.copy()
        if next_engine is not None and name_of(next_engine) == name:
            return NotReady("notready.loading", name=name, retry_after_s=5)
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            engines = [e for e in (self._seat and self._seat.engine, self._next) if e is not None]
        for engine in engines:
            _close(engine)


def _close(engine: Engine) -> None:
    """Whatever goes wrong in it: the work of whoever closes it goes on."""
    try:
        engine.close()
    except Exception:
        log.exception("an engine could not be closed")


def name_of(engine: Engine | None) -> str:
    """Also of one that cannot say it yet."""
    return getattr(engine, "kind", "")
