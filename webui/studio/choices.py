"""The choices of visitors for their takes, in memory and on disk: those that something depends on
are never forgotten, the others are bounded.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from ..errors import KaikouError, StorageDamaged
from ..store import ChoiceStore
from ..store.choices import Choice

log = logging.getLogger(__name__)
MAX_CHOICES = 10_000  # of owners without takes, and of all as long as there are no more with takes


class Choices:
    """Thread-safe.

    `has_takes(owner)`: a choice of theirs must hold. A choice that cannot be written holds in this
    run and is written later.
    """

    def __init__(self, store: ChoiceStore, has_takes: Callable[[str], bool]):
        self._store, self._has_takes = store, has_takes
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # of the disk: who only asks never waits for it
        self._changed: dict[str, Choice] = {}  # not yet on the disk
        try:
            self._choices = OrderedDict(store.load())  # the longest unused first
        except KaikouError as error:
            log.error("what visitors chose for their takes could not be read: %s", error)
            self._choices = OrderedDict()

    def of(self, owner: str) -> Choice:
        """For work of theirs: it counts as a use."""
        with self._lock:
            if owner in self._choices:
                self._choices.move_to_end(owner)
            return self._choices.get(owner, Choice())

    def peek(self, owner: str) -> Choice:
        return self._choices.get(owner, Choice())

    def change(self, owner: str, **changes) -> None:
        """Nothing is written when it is as it was."""
        with self._lock:
            before = self._choices.get(owner, Choice())
            after = replace(before, **changes)
            if after == before:
                return
            self._set(owner, after)
            self._bound()
        self.write()

    def _set(self, owner: str, choice: Choice) -> None:
        self._changed[owner] = choice
        self._choices.pop(owner, None)
        if choice != Choice():
            self._choices[owner] = choice

    def _bound(self) -> None:
        excess = len(self._choices) - MAX_CHOICES
        if excess > 0:
            idle = (owner for owner in list(self._choices)[:-1] if not self._has_takes(owner))
            for owner in [owner for owner, _ in zip(idle, range(excess), strict=False)]:
                self._set(owner, Choice())

    def write(self) -> None:
        """What is not on the disk yet."""
        with self._writing:
            with self._lock:
                changed, self._changed = self._changed, {}
            if not changed:
                return
            try:
                try:
                    self._store.save(changed)
                except StorageDamaged:  # the file was set aside: all goes into the new one
                    with self._lock:
                        changed = dict(self._choices) | changed
                    self._store.save(changed)
            except KaikouError as error:
                log.warning("what visitors chose for their takes is written later: %s", error.code)
                with self._lock:
                    self._changed = changed | self._changed

    def close(self) -> None:
        self.write()
        self._store.close()
