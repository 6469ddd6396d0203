"""Whoever waits for the first sound is called on a thread of its own: the stream does not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

OnFirst = Callable[[bytes], object]


class FirstAudio:
    """Calls `on_first` once, with the first samples that are there."""

    def __init__(self, on_first: OnFirst | None):
        self._on_first = on_first

    def __call__(self, pcm: bytes) -> None:
        """Some more samples have come."""
        if self._on_first is not None and pcm:
            threading.Thread(target=self._on_first, args=(pcm,), name="first-audio").start()
            self._on_first = None
