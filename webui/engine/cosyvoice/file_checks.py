"""Is this file what its name says?

Missing, a Git-LFS pointer, cut off, damaged, not readable: one sentence each. Runs nothing from a
file.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from .model_faults import model_fault

_LFS = b"version https://git-lfs"
_PARTS = (".part", ".incomplete", ".tmp", ".download")
_REMEDY_RIGHTS = ("Allow the studio's user to read it.", "请允许工作室的用户读取它。")


def head(root: Path, name: str, expected: tuple[str, str], count: int = 64) -> bytes:
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
        found = (
            (f"only the unfinished download {half}", f"只有没下载完的 {half}")
            if half
            else ("no such file", "没有这个文件")
        )
        raise model_fault(name, expected, found) from e
    except PermissionError as e:
        raise model_fault(
            name, expected, ("a file that may not be read", "没有读取权限的文件"), _REMEDY_RIGHTS
        ) from e
    except OSError as e:
        reason = e.strerror or type(e).__name__
        raise model_fault(
            name,
            expected,
            (f"something that cannot be read ({reason})", f"无法读取的内容（{reason}）"),
        ) from e
    if not start:
        raise model_fault(name, expected, ("an empty file", "空文件"))
    if start.startswith(_LFS):
        raise model_fault(
            name,
            expected,
            ("a Git-LFS pointer instead of the file", "Git-LFS 指针，而不是文件本身"),
        )
    return start


def text(root: Path, name: str, expected: tuple[str, str], limit: int = 64 << 20) -> str:
    """The whole of a UTF-8 text file of `limit` bytes at most. Raises NotReady."""
    head(root, name, expected)
    if (root / name).stat().st_size > limit:
        raise model_fault(name, expected, (f"more than {limit} bytes", f"超过 {limit} 字节的文件"))
    try:
        return (root / name).read_bytes().decode("utf-8")
    except UnicodeDecodeError as e:
        raise model_fault(
            name,
            expected,
            (
                f"bytes that are no UTF-8 text (at {e.start})",
                f"不是 UTF-8 文本的字节（位置 {e.start}）",
            ),
        ) from e


def zipped(root: Path, name: str) -> zipfile.ZipFile:
    """The container of a `torch.save` file, opened, not yet checked record by record.

    Raises NotReady.
    """
    expected = ("a PyTorch weight file (zip container)", "PyTorch 权重文件（zip 容器）")
    start = head(root, name, expected)
    try:
        return zipfile.ZipFile(root / name)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError) as e:
        size = (root / name).stat().st_size
        if start.startswith(b"PK"):
            found = (
                f"a container whose end is missing ({size} bytes)",
                f"结尾缺失的容器（{size} 字节）",
            )
        elif start[:1] == b"\x80":
            found = (
                "a bare pickle, which could run code and is not opened",
                "裸 pickle 文件，可能执行代码，不予打开",
            )
        else:
            found = (f"another kind of file ({size} bytes)", f"别的类型的文件（{size} 字节）")
        raise model_fault(name, expected, found) from e


def check_records(root: Path, name: str) -> None:
    """Compare every record of a `torch.save` file with its checksum.

    Reads the whole file once. Raises NotReady.
    """
    expected = ("records that fit their checksums", "与校验和一致的内容")
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
            raise model_fault(name, expected, ("a damaged container", "损坏的容器")) from e
        if bad is not None:
            raise model_fault(
                name, expected, (f"damaged bytes in record {bad}", f"记录 {bad} 的字节已损坏")
            )


def fingerprint(root: Path, name: str) -> str:
    """Names the content of a `torch.save` file by its records' sizes and checksums, without reading
    them. Raises NotReady.
    """
    with zipped(root, name) as container:
        rows = sorted(
            (i.filename.partition("/")[2], i.file_size, i.CRC) for i in container.infolist()
        )
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:32]
