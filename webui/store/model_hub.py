"""One file of a published model into its place, by the hubs' own libraries: resumed, checked, and
only from hosts that may be asked.

The libraries are imported where they fetch, so that the page opens without them. They resume one
another's unfinished files.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from ..errors import Cancelled, KaikouError, NotReady, StorageFull
from ..messages import Message, message
from .folder_store import FULL

if TYPE_CHECKING:
    from modelscope_hub import HubApi

# Read by the libraries: no bars on the terminal, no question to a cloud's internal addresses which
# region this is.
os.environ |= {"TQDM_DISABLE": "1", "MODELSCOPE_DOWNLOAD_INTRA_CLOUD": "false"}

log = logging.getLogger(__name__)
# a size known only by hearsay may be off by this factor: an error page or a pointer is far off
PLAUSIBLE = 2.0
PROGRESS_BYTES = 1 << 20  # a try that gained this much was worth it: another one follows
CHUNK_BYTES = 256 << 10  # what a broken connection may cost, and how often progress is told
HEAD_TIMEOUT_S = 15.0
UNFINISHED = ".incomplete"  # of modelscope_hub
_SHA256 = re.compile(r"[0-9a-f]{64}")
DISK = {*FULL, errno.EPERM, errno.EACCES, errno.EROFS}


@dataclass(frozen=True)
class FileSpec:
    """path: inside the target folder, with `/`. size: bytes; sha256: hex, None where unknown.

    Where `exact` is False both are only
    expected: a size may be off by the factor `within`, another checksum is a warning. optional: it
      may be missing where it is fetched.
    """

    path: str
    size: int
    exact: bool = False
    sha256: str | None = None
    within: float = PLAUSIBLE
    optional: bool = False

    def fits(self, size: int) -> bool:
        return size == self.size if self.exact else self.size / self.within <= size <= self.most

    @property
    def most(self) -> float:
        return self.size * (1 if self.exact else self.within)


class FileAbsent(NotReady):
    """The source has no such file (404, 410)."""


class FileDamaged(NotReady):
    """Another checksum than the source states, or than is expected of a file that was fetched in
    pieces.
    """


class _Stop(BaseException):
    """Carries a named error through a library that tries again after every Exception."""

    def __init__(self, error: KaikouError):
        super().__init__(error)
        self.error = error


class Transfer:
    """One file on its way: what the libraries report to, and what ends them. on_progress(bytes):
    how much of it is here now.
    """

    def __init__(
        self,
        spec: FileSpec,
        final: Path,
        on_progress: Callable[[int], None],
        cancelled: threading.Event,
    ):
        self.spec, self.final, self.cancelled = spec, final, cancelled
        self.unfinished = unfinished(final)
        self._on_progress = on_progress

    @property
    def have(self) -> int:
        return self.unfinished.stat().st_size if self.unfinished.is_file() else 0

    def report(self, have: int) -> None:
        self._on_progress(have)
        if have > self.spec.most:
            self.unfinished.unlink(missing_ok=True)
            raise _Stop(self.misfit(have))
        if self.cancelled.is_set():
            raise _Stop(Cancelled())

    def misfit(self, size: int) -> NotReady:
        why = message(
            "model_fetch.size" if self.spec.exact else "model_fetch.about_size",
            size=size,
            expected=self.spec.size,
        )
        return self.fault(why)

    def damaged(self) -> NotReady:
        return self.fault(message("model_fetch.checksum"), FileDamaged)

    def fault(self, why: Message, kind: type[NotReady] = NotReady) -> NotReady:
        return kind("model_fetch", why=why, param=self.spec.path)

    def named(self, error: Exception) -> KaikouError:
        """What a library raised, as a sentence."""
        number = next((n for e in _chain(error) if (n := getattr(e, "errno", 0)) in DISK), 0)
        if number:
            return disk_fault(number, self.spec.path)
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
        if status in (404, 410):
            return self.fault(message("model_fetch.not_there", status=status), FileAbsent)
        if status:
            return self.fault(message("model_fetch.refused", status=status))
        words = str(error).split("\n")[0][:120]
        words = words if words and words.isascii() else type(error).__name__
        return self.fault(message("model_fetch.unreachable", words=words))


@dataclass(frozen=True)
class Source:
    """endpoint: of a hub, or an address below which the files lie. hosts: they and their subdomains
    may be asked, and nobody else.
    """

    endpoint: str
    hosts: tuple[str, ...]

    def check(self, url: str) -> None:
        """Called before every request, those that follow a redirect too. Ends the transfer."""
        parts = urlsplit(url)
        host, schemes = parts.hostname or "", {"https", urlsplit(self.endpoint).scheme}
        if parts.scheme not in schemes or not any(
            host == allowed_host or host.endswith(f".{allowed_host}") for allowed_host in self.hosts
        ):
            origin = f"{parts.scheme}://{host}"[:100]
            raise _Stop(NotReady("model_redirect", where=origin, hosts=self.hosts))

    def address(self, repository: str, path: str) -> str:
        return f"{self.endpoint.rstrip('/')}/{quote(path)}"

    def bring(self, repository: str, transfer: Transfer) -> str:
        """The whole file to `transfer.final`, from where the unfinished one ends; returns its
        sha256, or "" when nobody knows it yet.
        """
        import huggingface_hub
        from huggingface_hub.file_download import http_get

        # Else the library asks its home which programs drive it, and tells which torch is here.
        huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
        huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
        huggingface_hub.logging.set_verbosity_error()
        spec, part = transfer.spec, transfer.unfinished
        url = self.address(repository, spec.path)
        with _checked_requests(huggingface_hub.get_session(), self.check, transfer):
            about = huggingface_hub.get_hf_file_metadata(
                url, token=False, timeout=HEAD_TIMEOUT_S, retry_on_errors=True
            )
            if about.size is not None and not spec.fits(about.size):
                part.unlink(missing_ok=True)
                raise transfer.misfit(about.size)
            if about.size is not None and transfer.have > about.size:
                part.unlink()
            start_bytes = transfer.have
            with part.open("ab") as file:
                http_get(
                    url,
                    file,
                    resume_size=start_bytes,
                    headers={"Accept-Encoding": "identity"},
                    expected_size=about.size,
                    tqdm_class=_bar(transfer),
                )
                os.fsync(file.fileno())
        sha256, etag = sha256_of(part, transfer.cancelled), about.etag or ""
        stated = etag if _SHA256.fullmatch(etag) else spec.sha256 if spec.exact else None
        if stated and sha256 != stated:
            part.unlink()
            raise transfer.damaged()
        os.replace(part, transfer.final)
        return sha256


class HuggingFace(Source):
    def address(self, repository: str, path: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(repository, path, endpoint=self.endpoint)


class ModelScope(Source):
    def bring(self, repository: str, transfer: Transfer) -> str:
        from modelscope_hub import FileIntegrityError, ProgressCallback

        class Progress(ProgressCallback):
            have = 0

            def update(self, size: int) -> None:
                self.have += size
                transfer.report(self.have)

        path = transfer.spec.path
        try:
            with _modelscope(self) as api:
                api.downloader.download_file(
                    repository,
                    "model",
                    path,
                    local_dir=transfer.final.parents[path.count("/")],
                    expected_sha256=transfer.spec.sha256 if transfer.spec.exact else None,
                    progress_callbacks=[Progress],
                    _cancel_event=transfer.cancelled,
                )
        except FileIntegrityError as error:
            raise transfer.damaged() from error
        return ""


@contextmanager
def _modelscope(source: ModelScope) -> Iterator[HubApi]:
    """Without anybody's token.

    The library keeps locks and a number that names the user in files: both go with the folder.
    """
    from modelscope_hub import HubApi, HubConfig

    logging.getLogger("modelscope_hub").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        api = HubApi(HubConfig(source.endpoint, folder, folder, token=""))
        for session in (api.legacy._session, api.legacy._read_session):
            session.send = _wrap_send(session.send, source.check)
        yield api


def _wrap_send(send: Callable, check: Callable[[str], None]) -> Callable:
    """`requests` sends the first request and each that follows a redirect through the session's
    `send`.
    """

    def checked(request, **options):
        check(request.url)
        return send(request, **options)

    return checked


_CHECK: ContextVar[Callable[[str], None] | None] = ContextVar("asking", default=None)


def _before_request(request) -> None:
    check = _CHECK.get()
    if check is not None:
        check(str(request.url))


@contextmanager
def _checked_requests(client, check: Callable[[str], None], transfer: Transfer) -> Iterator[None]:
    """huggingface_hub has one client for the process, which calls its hooks before each hop: ours
    looks at this thread's only.
    """

    def before(url: str) -> None:
        if transfer.cancelled.is_set():
            raise _Stop(Cancelled())
        check(url)

    hooks = client.event_hooks
    if _before_request not in hooks["request"]:
        client.event_hooks = {**hooks, "request": [_before_request, *hooks["request"]]}
    token = _CHECK.set(before)
    try:
        yield
    finally:
        _CHECK.reset(token)


def _bar(transfer: Transfer) -> type:
    """In the place of a progress bar."""

    class Bar:
        def __init__(self, *args, initial: int = 0, **named):
            self._have = initial

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, size: int) -> None:
            self._have += size
            transfer.report(self._have)

    return Bar


def download(
    spec: FileSpec,
    source: Source,
    repository: str,
    final: Path,
    on_progress: Callable[[int], None],
    cancelled: threading.Event,
) -> tuple[int, str]:
    """Returns bytes and sha256.

    Raises Cancelled (what is there stays for the next time), FileAbsent, StorageFull, NotReady with
    the reason.
    """
    transfer = Transfer(spec, final, on_progress, cancelled)
    is_second = False
    while True:
        start_bytes = transfer.have
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            final.unlink(missing_ok=True)  # not whole, else it would not be fetched
            sha256 = source.bring(repository, transfer) or sha256_of(final, cancelled)
            size = final.stat().st_size
            if not spec.fits(size):
                final.unlink()
                raise transfer.misfit(size)
            if start_bytes and spec.sha256 and sha256 != spec.sha256:
                final.unlink()
                raise transfer.damaged()
            return size, sha256
        except FileDamaged:
            if not start_bytes or is_second:
                raise
            is_second = True  # perhaps it was begun from another file: once more, in one piece
        except _Stop as stop:
            raise stop.error from None
        except KaikouError:
            raise
        except Exception as error:  # of any library below: each ends as a sentence
            if cancelled.is_set():
                raise Cancelled() from error
            fault = transfer.named(error)
            is_lasting = isinstance(fault, FileAbsent | StorageFull)
            if is_lasting or transfer.have - start_bytes < PROGRESS_BYTES:
                raise fault from error
            log.info("%s goes on after %s", spec.path, error)
        finally:
            if not transfer.have:
                transfer.unfinished.unlink(missing_ok=True)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from. The chain may be a ring."""
    visited_ids: set[int] = set()
    while error is not None and id(error) not in visited_ids:
        visited_ids.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def unfinished(final: Path) -> Path:
    return final.with_name(final.name + UNFINISHED)


def sha256_of(path: Path, cancelled: threading.Event | None = None) -> str:
    """Raises Cancelled, OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
            if cancelled is not None and cancelled.is_set():
                raise Cancelled()
    return digest.hexdigest()


def disk_fault(number: int, path: str) -> StorageFull:
    """What the system said (an errno) of writing to `path`, as a sentence."""
    if number in FULL:
        return StorageFull("storage.model_file", path=path)
    return StorageFull("storage_denied.model_folder", path=path, reason=os.strerror(number))
