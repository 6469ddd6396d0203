"""Any sound file to a Clip, read by a process with limits.

Blind to what is said in it and to where the bytes came from.

A worker that has met one stranger's bytes never meets another's: each reads one file and ends, and
the next one is started, warm, right after.
"""

from __future__ import annotations

import atexit
import os
import threading

import numpy as np

from ..errors import BadInput, ClipTooLarge
from .clip import Clip
from .file_type import sniff
from .worker_process import WorkerLost, WorkerProcess

MAX_BYTES = 10 * 2**20
# Of a container that may hold pictures: some 25 s of what a phone films in full HD, a minute at
# 720p. The pictures are never decoded, but the file lies in memory twice while it is read.
MAX_VIDEO_BYTES = 50 * 2**20
VIDEO_KINDS = ("mp4", "webm")
MAX_S = 60.0
MAX_WALL_S = 20.0
MAX_CPU_S = 12
MEMORY_BYTES = 1536 * 2**20  # address space, of which libraries take about half
AT_ONCE = 2  # more decodes than cores only slow the voice that is speaking
OK, _, TOO_LARGE, NO_READER, NO_SOUND, FIRST_TRACK = range(6)


class _Readers:
    """The standby worker and those at work."""

    def __init__(self):
        self._lock, self._slots = threading.Lock(), threading.BoundedSemaphore(AT_ONCE)
        self._standby: WorkerProcess | None = None
        self._busy: set[WorkerProcess] = set()

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

    def _take(self) -> WorkerProcess:
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


def _new() -> WorkerProcess:
    return WorkerProcess("read", memory_bytes=MEMORY_BYTES, cpu_s=MAX_CPU_S)


_readers = _Readers()


def decode(data: bytes) -> Clip:
    """The sound in `data` as mono at its own rate (at most 48 kHz).

    Safe from several threads; blocks, about 20 ms when warm.

    Of a video the first sound track is taken. Raises ClipTooLarge (over 10 MiB, or 50 MiB of a
    video, 60 s of sound, or the limits of time and memory) and BadInput ("bad_audio": not a file we
    read; "no_sound": a video without sound).
    """
    kind = sniff(data)
    if len(data) > (MAX_VIDEO_BYTES if kind in VIDEO_KINDS else MAX_BYTES):
        raise too_large()
    if not kind:
        raise bad_audio()
    try:
        state, rate, source_hz, channels, body = _readers.read(kind, data)
    except WorkerLost as e:
        raise (too_large() if e.late else bad_audio()) from None
    if state == TOO_LARGE:
        raise too_large()
    if state == NO_READER:
        raise BadInput("bad_audio.kind", kind=kind, param="audio_sample")
    if state == NO_SOUND:
        raise BadInput("no_sound.video", param="audio_sample")
    if state not in (OK, FIRST_TRACK):
        raise bad_audio()
    samples = np.frombuffer(body, "<f4").astype(np.float32)
    return Clip(samples, rate, channels, source_hz, is_first_track=state == FIRST_TRACK)


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
    return BadInput("bad_audio.not_readable", param="audio_sample")


def too_large() -> ClipTooLarge:
    return ClipTooLarge(param="audio_sample")


atexit.register(close_decoder)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_readers.forget)
