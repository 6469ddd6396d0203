"""The lanes of every engine that still speaks: of the one in charge, and of those before it until
their streams end. Blind to who may enter.
"""

from __future__ import annotations

from collections.abc import Callable

from ..engine.base import Engine
from .scheduler import Scheduler


class SchedulerPool:
    """max_streams: hungry at once; 0 = as many as the engine in charge keeps up with."""

    def __init__(self, stall_s: float, max_streams: int = 0):
        self._stall_s, self._max_streams = stall_s, max_streams
        self._lanes: dict[
            Engine, Scheduler
        ] = {}  # the last one's is in charge; replaced, never changed: any thread may look
        self.on_open: Callable[[], None] = lambda: None  # somebody is about to speak

    def add_job(self, engine: Engine) -> None:
        """An engine takes over: give it lanes.

        Those before it stay until their streams end, the last one's also for who just leased it.
        """
        schedulers = {
            e: lanes
            for i, (e, lanes) in enumerate(self._lanes.items(), 1)
            if lanes.n_open or i == len(self._lanes)
        }
        for lanes in [x for e, x in self._lanes.items() if e not in schedulers]:
            lanes.close()
        self._lanes = schedulers | {engine: Scheduler(engine, self._stall_s)}

    def of(self, engine: Engine) -> Scheduler:
        self.on_open()
        return self._lanes[engine]

    @property
    def _in_charge(self) -> list[Scheduler]:
        """Of one engine, or of none while there is none."""
        return list(self._lanes.values())[-1:]

    def capacity(self) -> int:
        own = [x.capacity for x in self._in_charge] or [2]
        if not self._max_streams:
            return own[0]
        return min([self._max_streams, *(x.n_wanting_audio + x.n_free for x in self._in_charge)])

    def expected_rtf(self) -> float:
        """What a stream that begins now may expect, shared with those already open."""
        return sum(x.expected_rtf for x in self._in_charge)

    @property
    def n_lanes(self) -> int:
        """Of the engine in charge; 0 while there is none."""
        return sum(x.n_lanes for x in self._in_charge)

    @property
    def n_open(self) -> int:
        return sum(x.n_open for x in self._lanes.values())

    def n_wanting_audio(self) -> int:
        return sum(x.n_wanting_audio for x in self._lanes.values())

    def cancel(self, request_id: str) -> None:
        """Whichever engine speaks it ends it within one step."""
        for engine in self._lanes:
            engine.cancel(request_id)

    def poke(self) -> None:
        """Credit, text or a cancel came in."""
        for lanes in self._lanes.values():
            lanes.poke()

    def close(self) -> None:
        for lanes in self._lanes.values():
            lanes.close()
