"""Samples to mp3, opus, aac or flac while they are made.

The codecs work in one process of their own (see NOTICE); blind to who listens.

One exchange at a time goes over its pipes: bytes in, bytes out, so a reader who does not read holds
back only what is made for him.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
from functools import partial
from pathlib import Path

from ..errors import KaikouError
from .wav import read_wav_header
from .worker_process import WorkerLost, WorkerProcess

log = logging.getLogger(__name__)
CODED = {"mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac", "flac": "audio/flac"}
MPEG_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
RATES = {
    "mp3": MPEG_HZ,
    "aac": MPEG_HZ,
    "opus": (8000, 12000, 16000, 24000, 48000),
}  # Hz that a codec takes; flac takes all of 8000 to 48000
MEMORY_BYTES, CPU_S, WALL_S = 2 * 2**30, 20, 20.0  # the seconds are of one exchange
PIECE_BYTES = (
    1 << 15
)  # about 0.7 s at 24 kHz: what one exchange takes at most, so that others get their turn
OPEN, PUSH, FINISH, CLOSE, OPEN_WHOLE = range(5)  # as worker/encode.py


def coded_hz(kind: str, rate: int) -> int:
    """Hz of a sound of `rate` Hz in a file of `kind`: the next higher rate that the codec takes."""
    rates = RATES.get(kind, (min(max(rate, 8000), 48000),))
    return next((r for r in rates if r >= rate), rates[-1])


class _Codecs:
    """The process and the line in front of it."""

    def __init__(self):
        self._lock, self._child, self._ids = threading.Lock(), None, itertools.count(1)
        self.n_open = 0

    def begin(self, kind: str, rate: int, label: str, is_whole: bool) -> tuple[WorkerProcess, int]:
        """Raises Lost, when not even a fresh process can."""
        key = next(self._ids)
        with self._lock:
            for is_last in (False, True):
                self._wake()
                try:
                    self._exchange(
                        kind,
                        (key, OPEN_WHOLE if is_whole else OPEN, rate, coded_hz(kind, rate)),
                        label.encode("utf-8"),
                    )
                    return self._child, key
                except WorkerLost:
                    if is_last:
                        raise
        raise WorkerLost(False)

    def ask(self, child: WorkerProcess, kind: str, key: int, op: int, data: bytes = b"") -> bytes:
        with self._lock:
            if child is not self._child or not child.alive:
                raise WorkerLost(False)
            return self._exchange(kind, (key, op), data)

    def _exchange(self, kind: str, numbers: tuple, data: bytes) -> bytes:
        try:
            state, self.n_open, _, _, coded = self._child.ask(kind, numbers, data, within_s=WALL_S)
        except WorkerLost as lost:
            log.warning(
                "the coding process %s; %d sounds were under way in it",
                "took too long" if lost.late else "ended",
                self.n_open,
            )
            self._drop()
            raise
        if state:
            raise WorkerLost(False)
        return coded

    def _wake(self) -> None:
        if self._child is None or not self._child.alive:
            self._drop()
            self._child = WorkerProcess("encode", memory_bytes=MEMORY_BYTES, cpu_s=CPU_S)

    def _drop(self) -> None:
        child, self._child, self.n_open = self._child, None, 0
        if child is not None:
            child.end()

    def warm(self) -> None:
        with self._lock:
            self._wake()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def count(self) -> int:
        child = self._child
        return int(child is not None and child.alive)

    def forget(self) -> None:
        if self._child is not None:
            self._child.forget()
        self.__init__()


_codecs = _Codecs()


class Encoder:
    """One sound on its way into one file; owned by one request, used by one thread at a time.

    `close` it whatever happens.

    kind: a key of CODED. is_whole: nothing comes before `finish`, which then gives a file that
      knows its own length.
    """

    def __init__(self, kind: str, rate: int, label: str = "", is_whole: bool = False):
        """Raises KaikouError("encode"), as `push` and `finish` do."""
        self._kind = kind
        try:
            self._child, self._key = _codecs.begin(kind, rate, label, is_whole)
        except WorkerLost:
            raise _encoder_fault(kind) from None
        self._is_open = True

    def push(self, pcm: bytes) -> bytes:
        """pcm: s16le mono.

        The bytes that are ready, often none of the first ones. Blocks for about a hundredth of the
        sound's length.
        """
        return b"".join(
            self._ask(PUSH, pcm[at : at + PIECE_BYTES]) for at in range(0, len(pcm), PIECE_BYTES)
        )

    def finish(self) -> bytes:
        """The rest. It is closed by this."""
        data = self._ask(FINISH)
        self._is_open = False
        return data

    def close(self) -> None:
        """Idempotent; raises nothing."""
        if self._is_open:
            self._is_open = False
            try:
                _codecs.ask(self._child, self._kind, self._key, CLOSE)
            except WorkerLost:
                return  # its process is gone, and it with it

    def _ask(self, op: int, data: bytes = b"") -> bytes:
        try:
            return _codecs.ask(self._child, self._kind, self._key, op, data)
        except WorkerLost:
            self._is_open = False
            raise _encoder_fault(self._kind) from None


def coded(path: Path, kind: str) -> bytes:
    """A WAV file of ours as a file of `kind`, a key of CODED, with the same label.

    Blocking. Raises KaikouError("encode").
    """
    with path.open("rb") as file:
        coder = Encoder(kind, *read_wav_header(file), is_whole=True)
        try:
            for piece in iter(partial(file.read, PIECE_BYTES), b""):
                coder.push(piece)
            return coder.finish()
        finally:
            coder.close()


def _encoder_fault(kind: str) -> KaikouError:
    return KaikouError("encode", kind=kind, param="response_format")


def warm_coder() -> None:
    """Have the process ready before the first sound comes. Returns at once."""
    _codecs.warm()


def close_coder() -> None:
    """End the process; the next Coder starts one again."""
    _codecs.close()


def coder_children() -> int:
    return _codecs.count()


def coders_open() -> int:
    """Sounds under way in the process, as it told last."""
    return _codecs.n_open


atexit.register(close_coder)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_codecs.forget)
