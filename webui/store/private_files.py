"""Folders and files that only the user who runs the studio may read, whatever the umask says.

Everything in the data folder is made here.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)
FOLDER, FILE, OTHERS = 0o700, 0o600, 0o077


def make_folder(path: Path) -> None:
    """With the folders above it that are missing. Raises OSError."""
    if not path.is_dir():
        make_folder(path.parent)
        with suppress(FileExistsError):
            path.mkdir(FOLDER)


def make_file(path: Path) -> None:
    """An empty file, unless there is one: whoever opens it then, SQLite too, keeps its mode.

    Raises OSError.
    """
    path.touch(FILE)


def write_file(path: Path, data: bytes) -> None:
    """A new file, or new contents of one that was made here. Raises OSError."""
    make_file(path)
    path.write_bytes(data)


def tighten(root: Path) -> None:
    """Take away what others may do with `root` and all that lies in it.

    Links are not followed. What cannot be changed stays as it is, with one line in the log: a
    folder of another user, and one on a file system without modes, are used all the same.
    """
    if not root.is_dir():
        return
    if root.stat().st_mode & stat.S_ISVTX:
        log.warning("the data folder is one that users share: what lies in it is left as it is")
        return
    failures: list[OSError] = []
    _tighten(root.resolve(), failures)
    # top down: once a folder is closed nobody else can exchange what is in it for a link
    for folder, folders, files in os.walk(root, onerror=failures.append):
        for name in (*folders, *files):
            _tighten(Path(folder, name), failures)
    if failures:
        log.warning(
            "%d entries of the data folder may still be read by other users (%s)",
            len(failures),
            failures[0].strerror,
        )


def _tighten(path: Path, failures: list[OSError]) -> None:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & OTHERS:
            return
        path.chmod(stat.S_IMODE(mode) & ~OTHERS)
        if path.lstat().st_mode & OTHERS:
            raise OSError(0, "the file system keeps no modes")
    except FileNotFoundError:
        return  # another process took it away
    except OSError as error:
        failures.append(error)
