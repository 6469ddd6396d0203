"""What each key and each demo link has used: requests, characters, seconds of sound.

Counted in memory, written every few seconds: a kill loses those.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from ..errors import KaikouError
from ..store.access_db import AccessStore, Used

log = logging.getLogger(__name__)
WRITE_S = 5.0
COUNTED = ("key-", "demo-")


def billing_id(owner: str) -> str:
    """Whom an owner's use is counted for: the key or link in `account/visit`, "" when it is
    neither.
    """
    account, _, visit = owner.partition("/")
    return visit if visit.startswith("key-") else account if account.startswith(COUNTED) else ""


class Usage:
    def __init__(self, store: AccessStore, clock: Callable[[], float] = time.time):
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._writing = threading.Lock()  # of the disk: who only counts never waits for it
        self._fresh: dict[str, Used] = {}
        self._closing = threading.Event()

    def count_request(self, account: str) -> None:
        """One request of a key or of a link's guest."""
        self._add(account, requests=1)

    def spoke(self, owner: str, n_chars: int, sound_s: float) -> None:
        """A text became sound, all or some of it."""
        account = billing_id(owner)
        if account:
            self._add(account, chars=n_chars, sound_s=sound_s)

    def of(self, account: str) -> Used:
        """So far, with what is not written yet."""
        return self.totals().get(account, Used())

    def totals(self) -> dict[str, Used]:
        with self._writing:  # what is being written is in one of the two, never in both
            used_by_account = self._store.usage()
            with self._lock:
                fresh = dict(self._fresh)
        return used_by_account | {
            account: _sum(used_by_account.get(account, Used()), more)
            for account, more in fresh.items()
        }

    def _add(self, account: str, **more) -> None:
        with self._lock:
            self._fresh[account] = replace(
                _sum(self._fresh.get(account, Used()), Used(**more)), last_used_at=self._clock()
            )

    def write(self) -> None:
        """What came since the last time. What cannot be written now is written later."""
        with self._writing:
            with self._lock:
                fresh, self._fresh = self._fresh, {}
            if not fresh:
                return
            try:
                self._store.add_usage(fresh.items())
            except Exception as error:  # whatever it is, the counts stay and the thread goes on
                code = error.code if isinstance(error, KaikouError) else type(error).__name__
                log.warning("the use of keys could not be written down: %s", code)
                with self._lock:
                    self._fresh = {
                        account: _sum(fresh.get(account, Used()), self._fresh.get(account, Used()))
                        for account in fresh | self._fresh
                    }

    def start(self) -> None:
        threading.Thread(target=self._go_on, name="usage", daemon=True).start()

    def _go_on(self) -> None:
        while not self._closing.wait(WRITE_S):
            self.write()

    def close(self) -> None:
        self._closing.set()
        self.write()


def _sum(a: Used, b: Used) -> Used:
    last = max((t for t in (a.last_used_at, b.last_used_at) if t is not None), default=None)
    return Used(a.requests + b.requests, a.chars + b.chars, a.sound_s + b.sound_s, last)
