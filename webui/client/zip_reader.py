"""A zip read while it comes in: each entry as soon as it is whole and its checksum fits.

Stored entries with sizes in front, as the studio sends them.
"""

from __future__ import annotations

import struct
import zlib

from .errors import Broken

ENTRY, LISTED, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
HEAD = {
    ENTRY: struct.Struct("<4s5HIIIHH"),
    LISTED: struct.Struct("<4s6HIII5HII"),
    END: struct.Struct("<4s4HIIH"),
}
MAX_ENTRY = 512 << 20
DESCRIPTOR = 1 << 3  # flag: sizes come behind the data


class ZipReader:
    """Reads the files of a ZIP archive while it arrives."""

    def __init__(self):
        self._raw, self._n, self._n_listed, self.is_whole = bytearray(), 0, 0, False

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Entries that became whole, in their order.

        Raises Broken for what is damaged or another kind of zip.
        """
        self._raw += data
        entries = []
        while not self.is_whole and len(self._raw) >= 4:
            kind = bytes(self._raw[:4])
            if kind not in HEAD:
                raise Broken("broken.zip")
            if len(self._raw) < HEAD[kind].size:
                break
            header = HEAD[kind].unpack_from(self._raw)
            if kind == ENTRY:
                entry = self._entry(*header[1:4], *header[6:])
                if entry is None:
                    break
                entries.append(entry)
            elif not self._listed(kind, header):
                break
        return entries

    def _entry(
        self,
        _version: int,
        flags: int,
        method: int,
        crc: int,
        packed: int,
        size: int,
        n_name: int,
        n_extra: int,
    ) -> tuple[str, bytes] | None:
        if method or flags & (DESCRIPTOR | 1) or packed != size or size > MAX_ENTRY:
            raise Broken("broken.zip_kind")
        head = HEAD[ENTRY].size
        start = head + n_name + n_extra
        if len(self._raw) < start + size:
            return None
        name, data = bytes(self._raw[head : head + n_name]), bytes(self._raw[start : start + size])
        if zlib.crc32(data) != crc:
            raise Broken("broken.zip")
        del self._raw[: start + size]
        self._n += 1
        return name.decode("utf-8", "replace"), data

    def _listed(self, kind: bytes, header: tuple) -> bool:
        """True when this part of the list was there.

        At its end: does it name as many entries as came?
        """
        size = HEAD[kind].size + (sum(header[10:13]) if kind == LISTED else header[7])
        if len(self._raw) < size:
            return False
        del self._raw[:size]
        if kind == LISTED:
            self._n_listed += 1
            return True
        if not self._n == self._n_listed == header[4]:
            raise Broken("broken.zip")
        self.is_whole = True
        return True

    def end(self) -> None:
        """Nothing more comes. Raises Broken when there should."""
        if not self.is_whole:
            raise Broken()
