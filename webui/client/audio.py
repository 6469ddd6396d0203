"""Sound as the studio sends it: WAV bytes in pieces of any size, checked for being whole.

No I/O but `Sound.save`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from .atomic_files import keep
from .errors import Broken

ENDLESS = 0xFFFFFFFF
MAX_HEAD = 1 << 16  # what stands before the samples


@dataclass(frozen=True)
class Sound:
    """A whole utterance. pcm: little-endian int16, mono, at `rate`. head: the WAV header it came
    with, which says that it was made by a machine.
    """

    pcm: bytes
    rate: int
    head: bytes = b""
    seed: int | None = None
    voice: str = ""
    engine: str = ""
    job: str = ""

    @property
    def seconds(self) -> float:
        """Length of the sound."""
        return len(self.pcm) / 2 / self.rate

    def wav(self) -> bytes:
        """A WAV with true sizes, the label of the studio in it."""
        n = len(self.pcm)
        head = (
            self.head[:4]
            + struct.pack("<I", len(self.head) - 8 + n)
            + self.head[8:-4]
            + struct.pack("<I", n)
        )
        return head + self.pcm

    def save(self, path: str | Path) -> Path:
        """Whole or not at all. Raises StorageFull."""
        return keep(Path(path), self.wav())


class WavReader:
    """`feed` gives samples (whole int16s) as soon as they are in; `end` raises Broken when
    something is missing.
    """

    def __init__(self):
        self.rate, self.head = 0, b""
        self._raw, self._left, self._n = b"", 0, 0

    def feed(self, data: bytes) -> bytes:
        """Raises Broken for what is no mono 16-bit WAV."""
        self._raw += data
        if not self.head and not self._read_head():
            return b""
        whole = min(len(self._raw), self._left) & ~1
        pcm, self._raw = self._raw[:whole], self._raw[whole:]
        if self._left != ENDLESS:
            self._left -= whole
        if not self._left:
            self._raw = b""  # chunks behind the samples are nobody's business
        self._n += whole
        return pcm

    def _read_head(self) -> bool:
        """True once the samples begin."""
        raw, at = self._raw, 12
        if len(raw) >= 12 and (raw[:4] != b"RIFF" or raw[8:12] != b"WAVE"):
            raise _not_sound()
        while len(raw) >= at + 8:
            name, size = struct.unpack_from("<4sI", raw, at)
            if name == b"data":
                if not self.rate:
                    raise _not_sound()
                self.head, self._raw, self._left = raw[: at + 8], raw[at + 8 :], size
                return True
            if at + 8 + size > MAX_HEAD:
                raise _not_sound()
            if name == b"fmt " and len(raw) >= at + 24:
                form, channels, self.rate, _, _, bits = struct.unpack_from("<HHIIHH", raw, at + 8)
                if (form, channels, bits) != (1, 1, 16) or not self.rate:
                    raise _not_sound()
            at += 8 + size + size % 2
        return False

    def end(self, is_framed: bool = True) -> None:
        """Nothing more comes. is_framed: the connection itself said that this was all; without it
        an endless header proves nothing.
        """
        if (
            not self.head
            or not self._n
            or self._raw
            or (self._left if self._left != ENDLESS else not is_framed)
        ):
            raise Broken()


def _not_sound() -> Broken:
    return Broken("not_sound")
