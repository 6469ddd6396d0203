"""Sound of batch lines, each file under the hash of everything it was made from: what is there is
whole, and never made again.

A file is written beside its place, synced, renamed, and its directory synced, before anybody is
told of it. Blind to jobs.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import NotFound, StorageFull
from .folder_store import FULL, GONE
from .private_files import FOLDER, write_file
from .sqlite import denied

log = logging.getLogger(__name__)
KEY = re.compile(r"[0-9a-f]{64}")
DRAFT = ".new-"


class BlobStore:
    """`disk`: what touches the disk, in one place, so that a test can take away what was not
    synced.
    """

    def __init__(self, root: Path, disk: Disk | None = None):
        self.root, self._disk = root / "sounds", disk or Disk()

    def path(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise NotFound("no_sound.number")
        return self.root / key[:2] / f"{key}.wav"

    def has(self, key: str) -> bool:
        return self.path(key).is_file()

    def keep(self, key: str, data: bytes) -> None:
        """When this returns the file is on the disk, whole, under its name.

        Raises StorageFull; then nothing of it is there.
        """
        final = self.path(key)
        draft = final.with_name(f"{DRAFT}{secrets.token_hex(8)}")
        try:
            self._disk.folder(final.parent)
            self._disk.write(draft, data)
            self._disk.rename(draft, final)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise (StorageFull() if error.errno in FULL else denied()) from error

    @contextmanager
    def dropping(self, keys: Iterable[str]) -> Iterator[None]:
        """The files have names that nobody looks for while the body runs, are gone after it, and
        are back when it fails. Raises StorageFull when one cannot be renamed: then all are there as
        before. What cannot be removed afterwards goes with a later `purge`.
        """
        moved: list[tuple[Path, Path]] = []
        try:
            for key in keys:
                final = self.path(key)
                dropped = final.with_name(f"{GONE}{secrets.token_hex(8)}")
                with suppress(FileNotFoundError):
                    os.replace(final, dropped)
                    moved.append((dropped, final))
            yield
        except BaseException as error:
            for dropped, final in moved:
                with suppress(OSError):
                    os.replace(dropped, final)
            if isinstance(error, OSError):
                raise denied() from error
            raise
        self._remove(dropped for dropped, _ in moved)

    def keys(self) -> Iterator[str]:
        yield from (p.stem for p in self.root.glob("??/*.wav") if KEY.fullmatch(p.stem))

    def sweep(self) -> None:
        """And what a killed process left half-written. Only while nobody writes."""
        self.purge()
        self._remove(self.root.glob(f"??/{DRAFT}*"))

    def purge(self) -> None:
        """Take away what is left of dropped sounds."""
        self._remove(self.root.glob(f"??/{GONE}*"))

    def _remove(self, paths: Iterable[Path]) -> None:
        failures = 0
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                failures += 1
        if failures:
            log.warning("%d files of dropped sounds could not be removed yet", failures)


class Disk:
    """Each of the three ways in returns when a power cut could not undo it any more; the steps
    below them are what the disk is asked for.
    """

    def folder(self, path: Path) -> None:
        if path.is_dir():
            return
        self.folder(path.parent)
        with suppress(FileExistsError):
            path.mkdir(FOLDER)
        self.sync_folder(path.parent)

    def write(self, path: Path, data: bytes) -> None:
        self.put(path, data)
        self.sync(path)

    def rename(self, draft: Path, final: Path) -> None:
        self.move(draft, final)
        self.sync_folder(final.parent)

    def put(self, path: Path, data: bytes) -> None:
        write_file(path, data)

    def sync(self, path: Path) -> None:
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    def move(self, draft: Path, final: Path) -> None:
        os.replace(draft, final)

    def sync_folder(self, path: Path) -> None:
        try:
            folder = os.open(path, os.O_RDONLY)
        except PermissionError:
            return  # a system whose folders cannot be opened keeps their order by itself
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in (
                errno.EINVAL,
                errno.ENOTSUP,
            ):  # some network folders cannot be synced at all
                raise
        finally:
            os.close(folder)
