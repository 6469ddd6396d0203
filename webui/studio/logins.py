"""Logins of browsers: how often one may be tried, and which were ended before their time.

Blind to passwords and cookies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..store.access_db import AccessStore
from .admission import Buckets

NAMES = 1024  # account names share this many buckets: whatever names are tried, memory stays small
# so many addresses that guess at once are needed to hold up others who log in by that name
NAME_FACTOR = 5


class Logins:
    """`on_end(id)` is called for each login that is ended.

    Blocking: every call may read the disk.
    """

    def __init__(
        self,
        store: AccessStore,
        tries_per_minute: int,
        on_end: Callable[[str], None] = lambda login_id: None,
        clock: Callable[[], float] = time.time,
    ):
        self._store, self._on_end, self._clock = store, on_end, clock
        self._trying = (
            threading.Lock()
        )  # right logins that come together do not count as one another's guesses
        self._by_place = Buckets(tries_per_minute)
        self._by_name = Buckets(NAME_FACTOR * tries_per_minute)

    def attempt(self, place: str, is_known: bool, name: str, try_it: Callable[[], str]) -> str:
        """What `try_it` returns: "" means that the login is wrong, and that counts.

        Raises Busy, without having tried, after too many of those.

        place: the browser where it `is_known`, else the address. A browser that was inside before
          is not held up by strangers who try the same name.
        """
        buckets = [(self._by_place, place)]
        if name and not is_known:
            buckets.append((self._by_name, str(hash(name) % NAMES)))
        with self._trying:
            for bucket, key in buckets:
                bucket.check(key)
            result = try_it()
            if result:
                for bucket, key in buckets:
                    bucket.give_back(key)
        return result

    def end(self, login_id: str, age_s: float) -> None:
        """For good. age_s: how long its cookie is valid at most."""
        now = self._clock()
        self._store.end_login(login_id, now, now + age_s)
        self._on_end(login_id)

    def is_ended(self, login_id: str) -> bool:
        return self._store.is_login_ended(login_id)
