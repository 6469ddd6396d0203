"""Files that are whole or not there, and the resume file: one line for each sound that is safely on
the disk, appended and synced.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import KaikouError, NotAllowed, StorageFull

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second client out of the folder there
    fcntl = None

MARKS = "kaikou-resume.jsonl"


class Unwritable(KaikouError):
    """A file of the output folder cannot be written."""

    status, kind, code = 500, "storage_error", "unwritable"


@contextmanager
def on_disk(path: Path) -> Iterator[None]:
    """OSErrors as named ones."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull() from error
        raise Unwritable("unwritable", path=path, reason=error.strerror or error) from error


def keep(path: Path, data: bytes) -> Path:
    """Written beside its place, synced, renamed. Raises StorageFull, Unwritable."""
    part = path.with_name(f".{path.name}.part")
    with on_disk(path):
        try:
            with part.open("wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            put(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    return path


def put(part: Path, path: Path) -> None:
    """Rename, and see to it that the name itself is on the disk."""
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """The names in it are on the disk when this returns."""
    if os.name == "posix":
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class ResumeLog:
    """What a folder holds already: key of a line -> what was told of it.

    In memory only where each mark stands in the file, about 0.15 kB a line.

    One client at a time; a mark that a crash cut in half is dropped, and its line is made again.
    """

    def __init__(self, folder: Path):
        self._path = folder / MARKS
        self._at: dict[bytes, int] = {}
        with on_disk(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b")
            try:
                self._lock()
                self._load()
            except BaseException:
                self._file.close()
                raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotAllowed("folder_taken", parent=self._path.parent) from None

    def _load(self) -> None:
        self._file.seek(0)
        at = 0
        for raw in self._file:
            if not raw.endswith(b"\n"):
                self._file.truncate(at)
                break
            with suppress(
                ValueError, KeyError, TypeError
            ):  # a line that somebody has changed by hand
                self._at[bytes.fromhex(json.loads(raw)["key"])] = at
            at += len(raw)

    def get(self, key: bytes) -> dict | None:
        """The record of a finished line; None where there is none."""
        at = self._at.get(key)
        if at is None:
            return None
        with on_disk(self._path):
            self._file.seek(at)
            return json.loads(self._file.readline())

    def add(self, key: bytes, record: dict) -> None:
        """On the disk when this returns. Raises StorageFull, Unwritable."""
        raw = json.dumps({"key": key.hex(), **record}, ensure_ascii=False).encode() + b"\n"
        with on_disk(self._path):
            at = self._file.seek(0, os.SEEK_END)
            try:
                self._file.write(raw)
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError:
                with suppress(OSError):
                    self._file.truncate(at)  # half a mark would swallow the next one
                raise
        self._at[key] = at

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()
