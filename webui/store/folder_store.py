"""Whole files or none: write beside, rename over.

A full disk is StorageFull and leaves nothing behind.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import NotFound, StorageFull
from .private_files import make_folder, write_file

log = logging.getLogger(__name__)
ID = re.compile(r"[a-z]+-[a-z0-9-]{1,60}")
GONE = ".gone-"  # what the name of a deleted entry begins with
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def new_id(kind: str) -> str:
    """128 random bits: an id cannot be guessed."""
    return f"{kind}-{secrets.token_hex(16)}"


def record(data: bytes, instead: float | None) -> Any:
    """A record as it was written.

    `instead` stands for NaN and the infinities, which no JSON that goes out may hold. Raises
    ValueError.
    """
    return json.loads(data, parse_constant=lambda name: instead)


class Folder:
    """A directory of entries named by id, each a folder of small files."""

    def __init__(self, root: Path):
        self.root = root

    def path(self, entry: str, name: str = "") -> Path:
        if not ID.fullmatch(entry):
            raise NotFound("not_found.id")
        return self.root / entry / name if name else self.root / entry

    def ids(self) -> Iterator[str]:
        if self.root.is_dir():
            yield from (p.name for p in self.root.iterdir() if ID.fullmatch(p.name))

    def write(self, entry: str, files: dict[str, bytes]) -> None:
        """All files of a new entry appear at once, by renaming its folder. Raises StorageFull."""
        final, draft = self.path(entry), self.root / f".new-{secrets.token_hex(8)}"
        try:
            make_folder(draft)
            for name, data in files.items():
                write_file(draft / name, data)
            os.replace(draft, final)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise _named(error) from error

    def put(self, entry: str, name: str, data: bytes) -> None:
        """Add or replace one file of an entry that exists. Raises StorageFull, NotFound."""
        final = self.path(entry, name)
        draft = final.with_name(f".{name}-{secrets.token_hex(8)}")
        try:
            write_file(draft, data)
            os.replace(draft, final)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise _named(error) from error

    def read(self, entry: str, name: str) -> bytes:
        try:
            return self.path(entry, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("not_found.id") from None

    def has(self, entry: str, name: str) -> bool:
        return self.path(entry, name).is_file()

    def remove(self, entry: str) -> None:
        """The entry gets a name that is never indexed, then its files go; those that cannot go now
        go with a later `purge`. Missing is fine. Raises StorageFull when it cannot even be renamed:
        then all of it is there as before.
        """
        trash_path = self.root / f"{GONE}{secrets.token_hex(8)}"
        try:
            os.replace(self.path(entry), trash_path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _named(error) from error
        shutil.rmtree(trash_path, ignore_errors=True)
        if trash_path.exists():
            log.warning("files of a deleted entry could not be removed yet: %s", trash_path.name)

    def purge(self) -> None:
        """Take away what is left of deleted entries."""
        for leftover in self.root.glob(f"{GONE}*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def sweep(self) -> None:
        """And what a killed process left half-written. Only while nobody writes."""
        self.purge()
        for leftover in self.root.glob(".new-*"):
            shutil.rmtree(leftover, ignore_errors=True)


def _named(error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        return NotFound("not_found.id")
    return StorageFull() if error.errno in FULL else StorageFull("storage_denied.data_folder")
