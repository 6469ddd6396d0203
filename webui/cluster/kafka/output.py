"""Where the sounds go: a folder, or an object store by way of fsspec. One file for each content
key, whole or not there, and never written a second time where that can be known.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...client.atomic_files import Unwritable, fcntl, on_disk, put, sync_folder
from ...client.audio import MAX_HEAD, Sound, WavReader
from ...client.errors import Broken
from ...errors import BadInput, KaikouError

# Protocols whose single put shows an object whole or not at all. Elsewhere a reader could see half
# a file, so that it is written beside its place and moved.
ATOMIC_PUT = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory")


class StoreUnusable(Unwritable):
    """The store of the sounds cannot be read or written now."""

    code = "store_unusable"


@dataclass(frozen=True)
class StoredSound:
    """A sound in its place."""

    url: str
    n_bytes: int
    seconds: float


class Output(Protocol):
    """Both methods may be called from any thread, and raise Unwritable or StorageFull."""

    def find(self, key: str) -> StoredSound | None: ...

    def keep(self, key: str, sound: Sound) -> StoredSound: ...


def name_of(key: str) -> str:
    """Below the output's root; nothing of a message but its hash is in it."""
    return f"{key[:2]}/{key}.wav"


def seconds_of(head: bytes, n_bytes: int) -> float:
    """Length of a WAV file of n_bytes that begins with `head`. Raises Broken."""
    reader = WavReader()
    reader.feed(head)
    if not reader.head:
        raise Broken()
    return round((n_bytes - len(reader.head)) / 2 / reader.rate, 3)


class Folder:
    """Written beside its place, synced, renamed, and the folder synced: when `keep` returns, a
    power cut cannot undo it. A second writer of the same key waits for the first one's lock and
    then finds the file.
    """

    def __init__(self, root: Path):
        self.root = root.absolute()
        with usable(str(self.root)), on_disk(self.root):
            self.root.mkdir(parents=True, exist_ok=True)

    def find(self, key: str) -> StoredSound | None:
        path = self.root / name_of(key)
        with usable(str(path)), on_disk(path):
            try:
                with path.open("rb") as f:
                    head, n_bytes = f.read(MAX_HEAD), os.fstat(f.fileno()).st_size
            except FileNotFoundError:
                return None
            # whoever renamed it may have been killed before its name was on the disk
            sync_folder(path.parent)
            return StoredSound(path.as_uri(), n_bytes, seconds_of(head, n_bytes))

    def keep(self, key: str, sound: Sound) -> StoredSound:
        path = self.root / name_of(key)
        part = path.with_name(f".{path.name}.part")
        with usable(str(path)), on_disk(path):
            if not path.parent.is_dir():
                path.parent.mkdir(exist_ok=True)
                sync_folder(self.root)
            with part.open("ab") as f:
                if fcntl is not None:
                    fcntl.flock(f, fcntl.LOCK_EX)
                if path.exists():  # another consumer was first, and may hold this very file open
                    part.unlink(missing_ok=True)
                else:
                    self._write(f, part, path, sound.wav())
        return self.find(key)

    def _write(self, f, part: Path, path: Path, data: bytes) -> None:
        try:
            f.truncate(0)  # what a killed consumer left of it
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
            put(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


class ObjectStore:
    """fs: an fsspec file system; root: the path in it; url: what both are called outside."""

    def __init__(self, fs, root: str, url: str):
        self._fs, self._root, self._url = fs, root.rstrip("/"), url.rstrip("/")
        protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
        self._is_put_atomic = bool(set(protocols) & set(ATOMIC_PUT))

    def find(self, key: str) -> StoredSound | None:
        path = f"{self._root}/{name_of(key)}"
        with usable(path):
            try:
                n_bytes = self._fs.info(path)["size"]
                head = self._fs.cat_file(path, start=0, end=min(n_bytes, MAX_HEAD))
            except FileNotFoundError:
                return None
            return StoredSound(f"{self._url}/{name_of(key)}", n_bytes, seconds_of(head, n_bytes))

    def keep(self, key: str, sound: Sound) -> StoredSound:
        path = f"{self._root}/{name_of(key)}"
        with usable(path):
            if self._is_put_atomic:
                self._fs.pipe_file(path, sound.wav())
            else:
                parent, _, name = path.rpartition("/")
                part = f"{parent}/.{name}.{secrets.token_hex(4)}.part"
                self._fs.makedirs(parent, exist_ok=True)
                self._fs.pipe_file(part, sound.wav())
                self._fs.mv(part, path)
        sound_file = self.find(key)
        if sound_file is None:
            raise StoreUnusable("store_unusable", path=path, reason="404")
        return sound_file


@contextmanager
def usable(path: str) -> Iterator[None]:
    """Whatever a driver raises, as one named error; a named one passes."""
    try:
        yield
    except KaikouError:
        raise
    except Exception as error:
        reason = str(error)[:200] or type(error).__name__
        raise StoreUnusable("store_unusable", path=path, reason=reason) from error


def open_output(url: str) -> Output:
    """A path or file:// is a folder; another scheme is fsspec's, with the driver that is installed
    for it. Raises BadInput.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "file" or not rest:
        return Folder(Path(rest or scheme))
    try:
        fsspec_core = importlib.import_module("fsspec.core")
        fs, root = fsspec_core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise BadInput("bad_setting.output", url=url, reason=error, param="out") from error
    return ObjectStore(fs, root, url)
