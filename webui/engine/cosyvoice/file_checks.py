"""Is this file what its name says?

Missing, a Git-LFS pointer, cut off, damaged, not readable: one sentence each. Runs nothing from a
file.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from ...messages import Message, message
from .model_faults import model_fault

_LFS = b"version https://git-lfs"
_PARTS = (".part", ".incomplete", ".tmp", ".download")
_REMEDY_RIGHTS = message("file.allow_reading")


def head(root: Path, name: str, expected: Message, count: int = 64) -> bytes:
    """The first bytes of `name` in the model directory `root`, after every check that needs no
    format. Raises NotReady.
    """
    path = root / name
    try:
        with path.open("rb") as f:
            start = f.read(count)
    except FileNotFoundError as e:
        half = next(
            (path.name + p for p in _PARTS if (path.parent / (path.name + p)).exists()), None
        )
        actual = (
            message("file.unfinished_download", half=half) if half else message("file.no_such_file")
        )
        raise model_fault(name, expected, actual) from e
    except PermissionError as e:
        raise model_fault(name, expected, message("file.no_right_to_read"), _REMEDY_RIGHTS) from e
    except OSError as e:
        reason = e.strerror or type(e).__name__
        raise model_fault(name, expected, message("file.not_readable", reason=reason)) from e
    if not start:
        raise model_fault(name, expected, message("file.empty"))
    if start.startswith(_LFS):
        raise model_fault(name, expected, message("file.lfs_pointer"))
    return start


def text(root: Path, name: str, expected: Message, limit: int = 64 << 20) -> str:
    """The whole of a UTF-8 text file of `limit` bytes at most. Raises NotReady."""
    head(root, name, expected)
    if (root / name).stat().st_size > limit:
        raise model_fault(name, expected, message("file.more_bytes", limit=limit))
    try:
        return (root / name).read_bytes().decode("utf-8")
    except UnicodeDecodeError as e:
        raise model_fault(name, expected, message("file.not_utf8", start=e.start)) from e


def zipped(root: Path, name: str) -> zipfile.ZipFile:
    """The container of a `torch.save` file, opened, not yet checked record by record.

    Raises NotReady.
    """
    expected = message("file.pytorch_zip")
    start = head(root, name, expected)
    try:
        return zipfile.ZipFile(root / name)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError) as e:
        size = (root / name).stat().st_size
        if start.startswith(b"PK"):
            actual = message("file.cut_container", size=size)
        elif start[:1] == b"\x80":
            actual = message("file.bare_pickle")
        else:
            actual = message("file.other_kind", size=size)
        raise model_fault(name, expected, actual) from e


def check_records(root: Path, name: str) -> None:
    """Compare every record of a `torch.save` file with its checksum.

    Reads the whole file once. Raises NotReady.
    """
    expected = message("file.records_fit_checksums")
    with zipped(root, name) as container:
        try:
            bad = container.testzip()
        except (
            zipfile.BadZipFile,
            OSError,
            EOFError,
            NotImplementedError,
            RuntimeError,
            ValueError,
            OverflowError,
        ) as e:
            raise model_fault(name, expected, message("file.damaged_container")) from e
        if bad is not None:
            raise model_fault(name, expected, message("file.damaged_record", bad=bad))


def fingerprint(root: Path, name: str) -> str:
    """Names the content of a `torch.save` file by its records' sizes and checksums, without reading
    them. Raises NotReady.
    """
    with zipped(root, name) as container:
        rows = sorted(
            (i.filename.partition("/")[2], i.file_size, i.CRC) for i in container.infolist()
        )
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:32]
