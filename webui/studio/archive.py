"""A zip made while it is sent: one entry at a time in memory, with true sizes in front of each, so that every unpacker reads it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator


class _Sent(io.RawIOBase):
    """A file whose front has left already. What has not may still be rewritten: zipfile goes back to an entry's head when it knows its size."""

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


class Zip:
    """`add` returns the bytes that can leave, `end` the last of them."""

    def __init__(self):
        self._out = _Sent()
        self._zip = zipfile.ZipFile(self._out, "w", zipfile.ZIP_STORED)

    def add(self, name: str, data: bytes) -> bytes:
        self._zip.writestr(
            zipfile.ZipInfo(name), data
        )  # no clock in it: the same lines make the same zip
        return self._out.take()

    def end(self) -> bytes:
        self._zip.close()
        return self._out.take()


def zipped(entries: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    made = Zip()
    for name, data in entries:
        yield made.add(name, data)
    yield made.end()
