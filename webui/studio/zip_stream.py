"""A zip made while it is sent: one entry at a time in memory, with true sizes in front of each, so
that every unpacker reads it.
"""

from __future__ import annotations

import io
import os
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from .. import audio
from ..errors import KaikouError

PIECE_BYTES = 1 << 20


class _Sent(io.RawIOBase):
    """A file whose front has left already.

    What has not may still be rewritten: zipfile goes back to an entry's head when it knows its
    size.
    """

    def __init__(self):
        self._base, self._rest = 0, io.BytesIO()

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._base + self._rest.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            return self._base + self._rest.seek(offset, whence)
        return self._base + self._rest.seek(
            offset - (self._base if whence == io.SEEK_SET else 0), whence
        )

    def write(self, data) -> int:
        return self._rest.write(data)

    def take(self) -> bytes:
        data = self._rest.getvalue()
        self._base += len(data)
        self._rest = io.BytesIO()
        return data


class ZipStream:
    """`add` returns the bytes that can leave, `stream` gives them piece by piece, `end` the last of
    them.
    """

    def __init__(self):
        self._out = _Sent()
        self._zip = zipfile.ZipFile(self._out, "w", zipfile.ZIP_STORED)

    def add(self, name: str, data: bytes) -> bytes:
        self._zip.writestr(
            zipfile.ZipInfo(name), data
        )  # no clock in it: the same lines make the same zip
        return self._out.take()

    def stream(self, name: str, path: Path) -> Iterator[bytes]:
        """A file of any size, in pieces: it is read twice, for its size and checksum stand in front
        of it. Raises FileNotFoundError, before anything.
        """
        with path.open("rb") as file:
            facts = os.stat(file.fileno())
            info = zipfile.ZipInfo(name, time.localtime(facts.st_mtime)[:6])
            info.external_attr = 0o600 << 16
            info.file_size = info.compress_size = facts.st_size
            info.CRC = 0
            for piece in _pieces(file):
                info.CRC = zlib.crc32(piece, info.CRC)
            file.seek(0)
            info.header_offset = self._out.tell()
            self._out.write(info.FileHeader())
            for piece in _pieces(file):
                self._out.write(piece)
                self._zip.start_dir = self._out.tell()  # one that is given up here closes here
                yield self._out.take()
        self._zip.start_dir = self._out.tell()
        self._zip.filelist.append(info)
        self._zip.NameToInfo[name] = info

    def end(self) -> bytes:
        self._zip.close()
        return self._out.take()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, PIECE_BYTES), b"")


def in_format(path: Path, kind: str) -> tuple[str, bytes | None, str]:
    """How an entry made from a WAV file ends, its bytes (None: those of the file), and why it is
    not of `kind`. Raises FileNotFoundError.
    """
    if kind == "wav":
        return kind, None, ""
    try:
        return kind, audio.coded(path, kind), ""
    except KaikouError as error:
        return "wav", None, error.en


def zipped(entries: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    zip_stream = ZipStream()
    for name, data in entries:
        yield zip_stream.add(name, data)
    yield zip_stream.end()
