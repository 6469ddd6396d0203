"""Who is speaking now: what readers and the two stages share, under one lock.

Computes nothing and never blocks for long.
"""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

import torch

from ....errors import EngineFault, KaikouError
from ..frontend.prompt_cache import CachedPrompt

log = logging.getLogger(__name__)
PREPARED_WITHIN_S = 5.0  # a voice that nobody waits for yet


def as_engine_error(error: Exception) -> KaikouError:
    """What the reader is told of it."""
    if isinstance(error, KaikouError):
        return error
    if isinstance(error, torch.OutOfMemoryError):
        return EngineFault("out_of_memory.request")
    log.error("a request failed", exc_info=error)
    return EngineFault()


class PrefillJob:
    """A voice to be made before its first request. `due_s` on the clock of the utterances."""

    def __init__(self, voice: CachedPrompt, due_s: float):
        self.voice, self.due_s, self.done = voice, due_s, threading.Event()
        self.error: KaikouError | None = None


class Request(Protocol):
    """What the scheduler does to a request."""

    has_ended: bool

    def end(self, fault: KaikouError | None) -> None: ...


RequestT = TypeVar("RequestT", bound=Request)


class Scheduler(Generic[RequestT]):
    """ids_wanted, sound_wanted: where the two stages sleep.

    Whoever changes what they look at notifies them.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.ids_wanted = threading.Condition(self.lock)
        self.sound_wanted = threading.Condition(self.lock)
        self.speaking: list[RequestT] = []
        self.orders: list[PrefillJob] = []
        self.first_made: RequestT | None = None  # whose first sound is being made now
        self.fault: KaikouError | None = None  # why nobody speaks any more
        self._leaving: SimpleQueue[RequestT | None] = SimpleQueue()

    def submit(self, request_state: RequestT) -> None:
        with self.lock:
            if self.fault is not None:
                raise self.fault.copy()
            if (
                request_state.has_ended
            ):  # cancelled before it was begun: nobody would take it off the list again
                return
            self.speaking.append(request_state)
            self.wake()

    def leave(self, request_state: RequestT) -> None:
        """Its reader has gone. Takes no lock: `end_left` ends it, in a thread of its own."""
        self._leaving.put(request_state)

    def end_left(self) -> None:
        """Until nobody can speak any more."""
        while (request_state := self._leaving.get()) is not None:
            with self.lock:
                request_state.end(None)
            del request_state  # else it would be kept until the next one leaves

    def wake(self) -> None:
        """The lock is held."""
        self.ids_wanted.notify_all()
        self.sound_wanted.notify_all()

    def stop(self, fault: KaikouError) -> None:
        """Everybody's request ends with `fault`, and so does every later one.

        Idempotent: the first reason stays.
        """
        with self.lock:
            if self.fault is None:
                self.fault = fault.copy()
            for order in self.orders:
                order.error = self.fault.copy()
                order.done.set()
            self.orders.clear()
            for request_state in list(self.speaking):
                request_state.end(self.fault.copy())
            self.wake()
        self._leaving.put(None)
