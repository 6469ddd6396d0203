"""Who still needs what an engine keeps of a prompt: voices and drafts that are there, work that is
under way. What nobody needs it forgets.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from weakref import WeakKeyDictionary

from ..engine.base import Engine
from ..engine.manager import Lease


class PromptLease:
    """The use of a prompt under a lease of its engine, by one piece of work.

    `release` is idempotent and gives both back.
    """

    def __init__(self, prompt_refs: PromptRefs, lease: Lease, fingerprint: str):
        self._refs, self._lease, self._fingerprint = prompt_refs, lease, fingerprint
        prompt_refs.add(lease.engine, fingerprint, self)

    def release(self) -> None:
        self._refs.drop(self, self._lease.engine, self._fingerprint)
        self._lease.release()


class PromptRefs:
    """Thread-safe.

    By engine and fingerprint, for two voices of the same sound are one to an engine.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._holders: WeakKeyDictionary[Engine, dict[str, set[Hashable]]] = WeakKeyDictionary()

    def add(self, engine: Engine, fingerprint: str, holder: Hashable) -> None:
        with self._lock:
            self._holders.setdefault(engine, {}).setdefault(fingerprint, set()).add(holder)

    def drop(self, holder: Hashable, engine: Engine, fingerprint: str) -> None:
        """`holder` needs that prompt no more. Idempotent."""
        with self._lock:
            is_last = self._is_last(holder, self._holders.get(engine, {}), fingerprint)
        if is_last:
            _forget(engine, fingerprint)

    def drop_all(self, holder: Hashable) -> None:
        """`holder` is gone."""
        with self._lock:
            last = [
                (engine, name)
                for engine, refs in list(self._holders.items())
                for name in list(refs)
                if self._is_last(holder, refs, name)
            ]
        for engine, fingerprint in last:
            _forget(engine, fingerprint)

    @staticmethod
    def _is_last(holder: Hashable, refs: dict[str, set[Hashable]], fingerprint: str) -> bool:
        """Takes `holder` off the list. True when there is nobody left on it."""
        holders = refs.get(fingerprint, set())
        if holder not in holders:
            return False
        holders.discard(holder)
        if not holders:
            del refs[fingerprint]
        return not holders


def _forget(engine: Engine, fingerprint: str) -> None:
    if hasattr(engine, "forget"):
        engine.forget(fingerprint)
