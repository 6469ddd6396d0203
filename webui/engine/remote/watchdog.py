"""Does the engine move?

A hung device leaves the talking threads alive, so their word is no proof: this looks where every
other thread stands.

Still is an engine that is asked to work while no thread of it has gone on by one instruction and no
work has ended; still is also a single piece of work that was told to end and does not. Looks are
counted, not seconds. A thread that computes in one long call counts a quarter: it may be slow, or
wait for a device by spinning.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

# share of one core from which on the process is at work; a crowded machine gives it little
COMPUTING = 0.05
QUARTER = 0.25


@dataclass(eq=False)
class Task:
    """One call into the engine. stream: the number of the stream it is a step of, 0 = of none."""

    stream: int = 0
    must_end: bool = False  # it was cancelled
    overdue: int = 0  # looks since then


class Watchdog:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: set[Task] = set()
        self._resting: set[int] = set()
        self._ended, self._still = 0, 0.0
        self._clocks = time.monotonic(), time.process_time()
        self._left_out: set[int] = set()
        self._before: int | None = None

    def leave_out(self) -> None:
        """The calling thread's moves say nothing about the engine."""
        self._left_out.add(threading.get_ident())

    @contextmanager
    def working(self, stream: int = 0) -> Iterator[None]:
        task = Task(stream)
        with self._lock:
            self._tasks.add(task)
        try:
            yield
        finally:
            with self._lock:
                self._tasks.remove(task)
                self._ended += 1

    @contextmanager
    def resting(self, stream: int) -> Iterator[None]:
        """What the stream waits for is not the engine."""
        with self._lock:
            self._resting.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._resting.discard(stream)

    def must_end(self, stream: int) -> None:
        """Its step under way was cancelled."""
        with self._lock:
            for task in self._tasks:
                task.must_end |= task.stream == stream

    def look(self) -> int:
        """How many looks in a row have found it still. Called by one thread, once per beat."""
        before, self._clocks = self._clocks, (time.monotonic(), time.process_time())
        is_computing = self._clocks[1] - before[1] > COMPUTING * (self._clocks[0] - before[0])
        places = {
            thread: stack_hash(frame)
            for thread, frame in sys._current_frames().items()
            if thread not in self._left_out
        }
        with self._lock:
            active = [task for task in self._tasks if task.stream not in self._resting]
            now = hash((self._ended, frozenset(places.items())))
            for task in active:
                task.overdue += task.must_end
            self._still = (
                self._still + (QUARTER if is_computing else 1)
                if active and now == self._before
                else 0
            )
            self._before = now
            return max([int(self._still), *(task.overdue for task in active)])


def stack_hash(frame: FrameType | None) -> int:
    """A number for the place a thread is at: every call it is in, to the instruction."""
    stack = []
    while frame is not None:
        stack.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return hash(tuple(stack))
