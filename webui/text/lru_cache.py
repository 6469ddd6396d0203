"""The last results, least recently used out first, bounded by entries and by characters.

Thread-safe; counts what it saved.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class LRUCache:
    def __init__(self, max_entries: int, max_chars: int):
        self._max_entries, self._max_chars = max_entries, max_chars
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[str, ...]] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self.chars = self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: tuple[str, ...], make: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """What is kept under `key`, else what `make` makes of it.

        A failure of `make` is kept nowhere; two at once may both make.
        """
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                self.hits += 1
                return found
            self.misses += 1
        made = make()
        size = sum(map(len, key)) + sum(map(len, made))
        if size <= self._max_chars:
            self._put(key, made, size)
        return made

    def _put(self, key: tuple[str, ...], made: tuple[str, ...], size: int) -> None:
        with self._lock:
            if key in self._held:
                return
            self._held[key], self._sizes[key] = made, size
            self.chars += size
            while len(self._held) > self._max_entries or self.chars > self._max_chars:
                gone, _ = self._held.popitem(last=False)
                self.chars -= self._sizes.pop(gone)
