"""Any sound file to a Clip, read by a process with limits. Blind to what is said in it and to where the bytes came from.

A worker that has met one stranger's bytes never meets another's: each reads one file and ends, and the next one is started, warm, right after.
"""

from __future__ import annotations

import atexit
import os
import threading

import numpy as np

from ..errors import BadInput, TooLarge
from .child import Child, Lost
from .clip import Clip
from .sniff import sniff

MAX_BYTES = 10 * 2**20
MAX_S = 60.0
MAX_WALL_S = 20.0
MAX_CPU_S = 12
MEMORY_BYTES = 1536 * 2**20  # address space, of which libraries take about half
AT_ONCE = 2  # more decodes than cores only slow the voice that is speaking
OK, _, TOO_LARGE, NO_READER = range(4)


class _Readers:
    """The standby worker and those at work."""

    def __init__(self):
        self._lock, self._slots = threading.Lock(), threading.BoundedSemaphore(AT_ONCE)
        self._standby: Child | None = None
        self._busy: set[Child] = set()

    def read(self, kind: str, data: bytes):
        with self._slots:
            child = self._take()
            try:
                return child.ask(kind, (MAX_S,), data, within_s=MAX_WALL_S)
            finally:
                child.end()
                with self._lock:
                    self._busy.discard(child)
                self.warm()

    def _take(self) -> Child:
        with self._lock:
            child, self._standby = self._standby, None
            if child is None or not child.alive:
                if child is not None:
                    child.end()
                child = _new()
            self._busy.add(child)
            return child

    def warm(self) -> None:
        with self._lock:
            if self._standby is None:
                self._standby = _new()

    def close(self) -> None:
        with self._lock:
            child, self._standby = self._standby, None
        if child is not None:
            child.end()

    def count(self) -> int:
        with self._lock:
            return sum(c.alive for c in (*self._busy, *([self._standby] if self._standby else [])))

    def forget(self) -> None:
        for child in (*self._busy, *([self._standby] if self._standby else [])):
            child.forget()
        self.__init__()


def _new() -> Child:
    return Child("read", memory_bytes=MEMORY_BYTES, cpu_s=MAX_CPU_S)


_readers = _Readers()


def decode(data: bytes) -> Clip:
    """The sound in `data` as mono at its own rate (at most 48 kHz). Safe from several threads; blocks, about 20 ms when warm.

    Raises TooLarge (over 10 MiB, 60 s of sound, or the limits of time and memory) and BadInput ("bad_audio": not a sound file we read).
    """
    if len(data) > MAX_BYTES:
        raise too_large()
    kind = sniff(data)
    if not kind:
        raise bad_audio()
    try:
        state, rate, source_hz, channels, body = _readers.read(kind, data)
    except Lost as e:
        raise (too_large() if e.late else bad_audio()) from None
    if state == TOO_LARGE:
        raise too_large()
    if state == NO_READER:
        raise BadInput(
            f"This kind of file ({kind}) cannot be read on this machine. Use wav, mp3 or flac.",
            f"这台机器读不了这种音频（{kind}）。请换 wav、mp3 或 flac。",
            code="bad_audio",
            param="audio_sample",
        )
    if state != OK:
        raise bad_audio()
    return Clip(np.frombuffer(body, "<f4").astype(np.float32), rate, channels, source_hz)


def warm_decoder() -> None:
    """Have a worker ready before the first clip comes. Returns at once."""
    _readers.warm()


def close_decoder() -> None:
    """End the standby worker; the next decode starts one again."""
    _readers.close()


def decoder_children() -> int:
    """Reader processes alive now: at most one more than decodes under way."""
    return _readers.count()


def bad_audio() -> BadInput:
    return BadInput(
        "This audio file cannot be read. Use wav, mp3, m4a or flac.",
        "读不懂这个音频文件。请换 wav、mp3、m4a 或 flac。",
        code="bad_audio",
        param="audio_sample",
    )


def too_large() -> TooLarge:
    return TooLarge(
        "The file is over 10 MB or 60 s. Trim it and try again.",
        "文件超过 10 MB 或 60 秒。请裁短后再传。",
        param="audio_sample",
    )


atexit.register(close_decoder)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_readers.forget)
