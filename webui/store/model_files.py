"""Published models on disk: what belongs to one, what of it is missing, and bringing it.

Knows file names and sizes; never looks inside.
"""

from __future__ import annotations

import fcntl
import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import BadInput, Busy, StorageFull
from ..messages import message
from .model_hub import (
    PLAUSIBLE,
    FileAbsent,
    FileSpec,
    HuggingFace,
    ModelScope,
    Source,
    disk_fault,
    download,
    sha256_of,
    unfinished,
)

log = logging.getLogger(__name__)
# The hosts are those that the hubs' redirects lead to; large files lie on networks of their own.
SOURCES: dict[str, Source] = {
    "modelscope": ModelScope("https://modelscope.cn", ("modelscope.cn", "aliyuncs.com")),
    "hf-mirror": HuggingFace("https://hf-mirror.com", ("hf-mirror.com", "huggingface.co", "hf.co")),
}
GITHUB, GITHUB_FILES = (
    "github.com",
    "githubusercontent.com",
)  # releases redirect from one to the other
ROOM_BYTES = 256 << 20  # left free on the disk
RECORD = ".fetched.json"  # size and checksum of every file as it came: what `verify` compares with
LFS = b"version https://git-lfs"
_STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Model:
    name: str
    repositories: Mapping[str, str]  # source -> name there
    files: tuple[FileSpec, ...]
    engine: str = "cosyvoice2"  # the generation, as prompts and takes name it

    @property
    def bytes(self) -> int:
        """About: as the manifest has it."""
        return sum(spec.size for spec in self.files)


@dataclass(frozen=True)
class Plan:
    """missing: files still to come, in order, optional ones too; bytes: what they take, less what
    unfinished ones already hold; exact: no size
    is rounded.
    """

    missing: tuple[FileSpec, ...]
    bytes: int
    total_bytes: int
    exact: bool

    @property
    def is_complete(self) -> bool:
        return all(spec.optional for spec in self.missing)


@dataclass(frozen=True)
class Progress:
    """done and total: bytes of all files of the model. rate: bytes a second of this fetch, 0 while
    unknown.
    """

    file: str
    done: int
    total: int
    rate: float

    @property
    def left_s(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate > 0 else None


def read_manifest(path: Path) -> dict[str, Model]:
    """Name -> model.

    Raises BadInput naming the entry that is wrong; a file name that leaves the folder is wrong.
    """
    try:
        table = json.loads(path.read_text("utf-8"))
        models = {name: _model(name, entry) for name, entry in table["models"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad(path.name, str(error)) from error
    return models


def expected_files(
    models: Mapping[str, Model], names: tuple[str, ...], yaml: str
) -> dict[str, tuple[int, str]]:
    """Path -> (bytes, sha256) of the published files of a model directory, where a checksum is
    known. Third parties list them: a difference is a reason to warn. names: of the directory and
    its parents, the first that is a model's counts; else the first model with that yaml; else {}.
    """
    matches = [models[name] for name in names if name in models] or [
        model for model in models.values() if any(spec.path == yaml for spec in model.files)
    ]
    return {
        spec.path: (spec.size, spec.sha256)
        for model in matches[:1]
        for spec in model.files
        if spec.sha256 is not None
    }


def published_files(models: Mapping[str, Model], yaml: str) -> dict[str, dict]:
    """Model -> path -> (bytes, sha256 or "") of every release with that yaml, to tell which one a
    directory holds.
    """
    return {
        name: {s.path: (s.size, s.sha256 or "") for s in model.files if not s.optional}
        for name, model in models.items()
        if any(spec.path == yaml for spec in model.files)
    }


def _model(name: str, entry: Mapping) -> Model:
    if not _STEP.fullmatch(name):
        raise _bad("models", name)
    files = tuple(
        FileSpec(
            _inside(f["path"]),
            _whole(f),
            bool(f.get("exact")),
            _hex(f.get("sha256")),
            float(f.get("within", PLAUSIBLE)),
            bool(f.get("optional")),
        )
        for f in entry["files"]
    )
    return Model(name, dict(entry["repositories"]), files, str(entry.get("engine", "cosyvoice2")))


def _inside(path: str) -> str:
    if not all(_STEP.fullmatch(step) for step in path.split("/")):
        raise _bad("path", path)
    return path


def _whole(entry: Mapping) -> int:
    if type(entry["size"]) is not int or entry["size"] < 1:
        raise _bad(str(entry["path"]), f"size {entry['size']}")
    return entry["size"]


def _hex(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[0-9a-f]{64}", value):
        raise _bad("sha256", value)
    return value


def _bad(source: str, problem: str) -> BadInput:
    return BadInput("bad_manifest", where=source, what=problem[:120], param="manifest")


def source_at(name: str) -> Source:
    """A name of SOURCES, or an http(s) address below which the files lie. Raises BadInput."""
    if name in SOURCES:
        return SOURCES[name]
    host = urlsplit(name).hostname
    if not name.startswith(("http://", "https://")) or not host:
        raise BadInput("bad_source.or_address", name=name[:60], sources=SOURCES, param="source")
    return Source(name, (host, GITHUB_FILES) if host == GITHUB else (host,))


class ModelFetcher:
    """Brings one model into `root`. source: a name of SOURCES, or an http(s) address below which
    the files lie.

    free_bytes is a seam for tests. Make a new one for each fetch; `plan` and `verify` ask nobody.
    Raises BadInput for an unknown source.
    """

    def __init__(
        self,
        root: Path,
        source: str,
        model: Model,
        free_bytes: Callable[[Path], int] | None = None,
    ):
        self._from = source_at(source)
        self.root, self.source, self.model = root, source, model
        self._free = free_bytes or (lambda path: shutil.disk_usage(path).free)

    def _repository(self) -> str:
        """The model's name at the source; "" where the source has no names.

        Raises BadInput when it is not there.
        """
        repository = self.model.repositories.get(self.source, "")
        if self.source in SOURCES and not repository:
            raise BadInput(
                "bad_source.model", name=self.model.name, source=self.source, param="source"
            )
        return repository

    def plan(self) -> Plan:
        missing = tuple(spec for spec in self.model.files if self._fault(spec))
        n_bytes = sum(max(0, spec.size - self._part_bytes(spec)) for spec in missing)
        return Plan(missing, n_bytes, self.model.bytes, all(spec.exact for spec in missing))

    def fetch(
        self,
        progress: Callable[[Progress], None] = lambda progress: None,
        cancelled: threading.Event | None = None,
    ) -> None:
        """Brings what is missing, in the manifest's order: small files, then large ones.

        May be called again after any failure.

        Raises Cancelled (started files stay and are taken up again), StorageFull, Busy (another
        fetch runs here), NotReady with the reason.
        """
        cancelled = cancelled or threading.Event()
        with self._alone():
            plan = self.plan()
            self._check_room(plan)
            if plan.is_complete:
                return
            repository = self._repository()
            tell = ProgressTracker(
                plan, sum(self._part_bytes(spec) for spec in plan.missing), progress
            )
            for spec in plan.missing:
                final = self._place(spec)
                tell.begin(spec, self._part_bytes(spec))
                try:
                    size, sha256 = download(
                        spec, self._from, repository, final, tell.report, cancelled
                    )
                except FileAbsent:
                    if not spec.optional:
                        raise
                    tell.end(0)
                    continue
                self._remember(spec, size, sha256)
                tell.end(size)
            for path in self.unexpected():
                log.warning("%s of %s is another file than the expected one", path, self.root.name)

    def verify(self, cancelled: threading.Event | None = None) -> list[tuple[str, str, str]]:
        """Reads every file.

        (path, fault in English, in Chinese) for each that is missing or differs from the manifest,
        or from how it came.
        """
        faults, record = [], self._record()
        for spec in self.model.files:
            fault = self._fault(spec)
            if spec.optional and not (self.root / spec.path).exists():
                continue
            recorded_sha256 = record.get(spec.path, {}).get("sha256")
            expected_sha256 = spec.sha256 if spec.exact else recorded_sha256
            if (
                not fault
                and expected_sha256
                and sha256_of(self.root / spec.path, cancelled) != expected_sha256
            ):
                fault = message("file.fetched_checksum")
            if fault:
                faults.append((spec.path, *fault))
        return faults

    def unknown(self) -> list[str]:
        """Files for which no checksum is known: `verify` compares their sizes only."""
        record = self._record()
        return [
            s.path
            for s in self.model.files
            if (self.root / s.path).exists()
            and not ((s.exact and s.sha256) or record.get(s.path, {}).get("sha256"))
        ]

    def unexpected(self) -> list[str]:
        """Files that came whole with another checksum than the manifest expects: perhaps a newer
        publication. Reads no file.
        """
        record = self._record()
        return [
            s.path
            for s in self.model.files
            if s.sha256 and record.get(s.path, {}).get("sha256", s.sha256) != s.sha256
        ]

    def discard(self, path: str) -> None:
        """Take away a file that `verify` named, so that the next `fetch` brings it.

        Only files of the model.
        """
        for spec in self.model.files:
            if spec.path == path:
                self._place(spec).unlink(missing_ok=True)

    def _fault(self, spec: FileSpec) -> tuple[str, str] | None:
        path = self.root / spec.path
        try:
            size = path.stat().st_size
            with path.open("rb") as f:
                is_pointer = f.read(len(LFS)) == LFS
        except FileNotFoundError:
            return message("file.fetched_missing")
        except OSError as error:
            return message("file.fetched_not_readable", reason=error.strerror)
        if is_pointer:
            return message("file.fetched_lfs_pointer")
        recorded_size = self._record().get(spec.path, {}).get("size")
        if not spec.fits(size) or (recorded_size is not None and recorded_size != size):
            return message("file.fetched_size", size=size, expected=recorded_size or spec.size)
        return None

    def _part_bytes(self, spec: FileSpec) -> int:
        part = unfinished(self.root / spec.path)
        return part.stat().st_size if part.is_file() else 0

    def _place(self, spec: FileSpec) -> Path:
        """Where the file goes. A link inside the folder that leads out of it is refused."""
        final = self.root / _inside(spec.path)
        if not final.parent.resolve().is_relative_to(self.root.resolve()):
            raise _bad("path", spec.path)
        return final

    def _check_room(self, plan: Plan) -> None:
        free = self._free(self.root)
        if plan.missing and plan.bytes + ROOM_BYTES > free:
            gb = (plan.bytes + ROOM_BYTES) / 1e9, free / 1e9
            raise StorageFull("no_disk", name=self.model.name, needed_gb=gb[0], free_gb=gb[1])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """In a folder of its own: two writers would spoil each other's parts.

        The lock goes with the process, however it ends.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".fetch.lock").open("w")
        except OSError as error:
            raise disk_fault(error.errno, self.root.name) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Busy("fetching", name=self.model.name) from error
            yield

    def _record(self) -> dict[str, dict]:
        try:
            record = json.loads((self.root / RECORD).read_text("utf-8"))
            return {k: v for k, v in record.items() if isinstance(v, dict)}
        except (OSError, ValueError, AttributeError):
            return {}

    def _remember(self, spec: FileSpec, size: int, sha256: str) -> None:
        record = {
            **self._record(),
            spec.path: {"size": size, "sha256": sha256, "source": self.source},
        }
        draft = self.root / (RECORD + ".new")
        try:
            draft.write_text(json.dumps(record, indent=1), "utf-8")
            draft.replace(self.root / RECORD)
        except OSError as error:
            raise disk_fault(error.errno, RECORD) from error


class ProgressTracker:
    """Adds up bytes of several files for one listener."""

    def __init__(self, plan: Plan, n_partial: int, listener: Callable[[Progress], None]):
        missing = sum(spec.size for spec in plan.missing)
        self._before, self._total = plan.total_bytes - missing, plan.total_bytes
        self._start_bytes, self._start_s = self._before + n_partial, time.monotonic()
        self._later = n_partial  # bytes that lie in parts of files not yet begun
        self._listener, self._file, self._size = listener, "", 0

    def begin(self, spec: FileSpec, have: int) -> None:
        self._file, self._size, self._later = spec.path, spec.size, self._later - have
        self.report(have)

    def report(self, have: int) -> None:
        done = self._before + have + self._later
        spent_s = time.monotonic() - self._start_s
        rate = max(0.0, (done - self._start_bytes) / spent_s) if spent_s > 0 else 0.0
        self._listener(Progress(self._file, done, max(self._total, done), rate))

    def end(self, size: int) -> None:
        self._total += size - self._size
        self._before += size
        self.report(0)
