"""One file over HTTP into its place: taken up where a `.part` was left, checked, renamed only when whole. Knows nothing of models."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import httpx

from ..errors import Cancelled, NotReady, StorageFull
from .files import FULL

PROGRESS_BYTES = 1 << 20  # a try that gained this much was worth it: the count starts again
TRIES = 6
MAX_WAIT_S = 60.0
AGAIN = {408, 425, 429, 500, 502, 503, 504}
PLAUSIBLE = 2.0  # a size known only roughly may be off by this factor, no more, where the manifest says no other: an error page or a pointer is far off

Opener = Callable[[str, Mapping[str, str]], AbstractContextManager[httpx.Response]]
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


@dataclass(frozen=True)
class FileSpec:
    """path: inside the target folder, with `/`. size: bytes, rounded where `exact` is False. sha256: hex, None where unknown.
    within: the factor by which a rounded size may be off."""

    path: str
    size: int
    exact: bool = False
    sha256: str | None = None
    within: float = PLAUSIBLE

    def fits(self, size: int) -> bool:
        return size == self.size if self.exact else self.size / self.within <= size <= self.most

    @property
    def most(self) -> float:
        return self.size * (1 if self.exact else self.within)


@dataclass(frozen=True)
class Fetched:
    size: int
    sha256: str


class Part:
    """The unfinished file beside its place, and what is known of the whole it belongs to: size, validator, address."""

    def __init__(self, final: Path):
        self.final = final
        self.path = final.with_name(final.name + ".part")
        self._note = final.with_name(final.name + ".part.json")

    @property
    def have(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def told(self) -> dict:
        try:
            note = json.loads(self._note.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def begin(self, size: int | None, tag: str, url: str) -> None:
        self._note.write_text(json.dumps({"size": size, "tag": tag, "url": url}), "utf-8")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def finish(self) -> None:
        os.replace(self.path, self.final)
        self._note.unlink(missing_ok=True)


class _Again(Exception):
    def __init__(self, why: str, wait_s: float = 0.0):
        super().__init__(why)
        self.wait_s = wait_s


class Download:
    """`run` brings one file. told(bytes): how much of it is here now. cancelled: looked at between blocks, and ends a wait at once."""

    def __init__(
        self,
        spec: FileSpec,
        final: Path,
        url: str,
        opener: Opener,
        told: Callable[[int], None],
        cancelled: threading.Event,
    ):
        self._spec, self._url, self._opener, self._told, self._cancelled = (
            spec,
            url,
            opener,
            told,
            cancelled,
        )
        self._part = Part(final)
        self._is_seamed = bool(
            self._part.have
        )  # bytes of an earlier request lie in the part: a misfit may be the seam's fault

    def run(self) -> Fetched:
        """Raises Cancelled (what is there stays for the next time), StorageFull, NotReady with the reason."""
        try:
            self._part.final.parent.mkdir(parents=True, exist_ok=True)
            return self._whole()
        except OSError as error:
            raise _disk(error, self._spec.path) from error

    def _whole(self) -> Fetched:
        self._pull_through()
        try:
            made = self._checked()
        except NotReady:
            self._part.drop()
            if not self._is_seamed:
                raise
            self._pull_through()  # once more, in one piece
            made = self._checked()
        self._part.finish()
        return made

    def _pull_through(self) -> None:
        """Requests until the whole is here: at most TRIES in a row that bring next to nothing."""
        tries = 0
        while True:
            before = self._part.have
            try:
                return self._pull()
            except (httpx.TransportError, _Again) as error:
                tries = 1 if self._part.have - before >= PROGRESS_BYTES else tries + 1
                if tries >= TRIES:
                    raise self._fault(
                        f"the server could not be reached or broke off {TRIES} times ({_words(error)})",
                        f"连接服务器 {TRIES} 次都没有成功或中断（{_words(error)}）",
                    ) from error
                wait_s = getattr(error, "wait_s", 0.0) or 2.0 ** (tries - 1)
                if self._cancelled.wait(min(wait_s, MAX_WAIT_S)):
                    raise Cancelled() from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._fault(
                    f"the request failed ({_words(error)})", f"请求失败（{_words(error)}）"
                ) from error

    def _pull(self) -> None:
        have, note = self._part.have, self._part.told()
        if have and have == note.get("size"):
            return
        headers = {"Accept-Encoding": "identity"}  # else lengths would count packed bytes
        if have:
            headers["Range"] = f"bytes={have}-"
            tag = note.get("tag") if note.get("url") == self._url else None
            if tag:
                headers["If-Range"] = tag
        if self._cancelled.is_set():
            raise Cancelled()
        with self._opener(self._url, headers) as response:
            total = self._whole_size(response, have, note.get("size"))
            if total is not None and not self._spec.fits(total):
                self._part.drop()
                raise self._misfit(total)
            is_new = response.status_code == 200
            self._is_seamed = not is_new
            self._part.begin(total, _validator(response), self._url)
            self._store(response, is_new)
        if total is not None and self._part.have != total:
            if self._part.have > total:
                self._part.drop()
            raise _Again("the file was cut off")

    def _whole_size(self, response: httpx.Response, have: int, known: int | None) -> int | None:
        """Bytes of the whole file as this answer states them. Raises _Again or the fault when the answer is no such file."""
        status = response.status_code
        if status == 206:
            match = _RANGE.match(response.headers.get("Content-Range", ""))
            if have and match and int(match[1]) == have and known in (None, int(match[2])):
                return int(match[2])
        if status in (206, 416):  # another file than the one begun
            self._part.drop()
            raise _Again(f"the server's file changed ({status})", 0.01)
        if status in AGAIN:
            after = response.headers.get("Retry-After", "")
            raise _Again(
                f"HTTP {status}", float(after) if after.isascii() and after.isdigit() else 0.0
            )
        if status != 200:
            remedy = (
                ("It is not there", "服务器上没有这个文件")
                if status in (404, 410)
                else ("The server refused", "服务器拒绝了")
            )
            raise self._fault(f"{remedy[0]} (HTTP {status})", f"{remedy[1]}（HTTP {status}）")
        length = response.headers.get("Content-Length", "")
        return int(length) if length.isascii() and length.isdigit() else None

    def _store(self, response: httpx.Response, is_new: bool) -> None:
        with self._part.path.open("wb" if is_new else "ab") as out:
            have = out.tell()
            for block in response.iter_raw():  # as they come: a fixed block size would lose the last ones when the connection breaks
                out.write(block)
                have += len(block)
                self._told(have)
                if self._cancelled.is_set():
                    raise Cancelled()
                if have > self._spec.most:
                    break  # more than there can be: the check names it
            out.flush()
            os.fsync(out.fileno())

    def _checked(self) -> Fetched:
        size = self._part.have
        if not self._spec.fits(size):
            raise self._misfit(size)
        total = sha256_of(self._part.path, self._cancelled)
        if self._spec.sha256 and total != self._spec.sha256:
            raise self._fault(
                f"its checksum is {total[:12]}…, it should be {self._spec.sha256[:12]}…",
                f"校验和是 {total[:12]}…，应为 {self._spec.sha256[:12]}…",
            )
        return Fetched(size, total)

    def _misfit(self, size: int) -> NotReady:
        about = ("", "") if self._spec.exact else ("about ", "约 ")
        return self._fault(
            f"the server gave {size:,} bytes, it should be {about[0]}{self._spec.size:,}",
            f"服务器给出 {size:,} 字节，应为{about[1]}{self._spec.size:,} 字节",
        )

    def _fault(self, en: str, zh: str) -> NotReady:
        return NotReady(
            f"{self._spec.path} could not be fetched: {en}. Try again later, or use another source.",
            f"没能下载 {self._spec.path}：{zh}。请稍后再试，或换一个下载源。",
            code="model_fetch",
            param=self._spec.path,
        )


def sha256_of(path: Path, cancelled: threading.Event | None = None) -> str:
    """Raises Cancelled, OSError."""
    made = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            made.update(block)
            if cancelled is not None and cancelled.is_set():
                raise Cancelled()
    return made.hexdigest()


def over_http(timeout_s: float = 15.0) -> Opener:
    """The real opener: follows redirects, never from https to plain http."""
    client = httpx.Client(
        follow_redirects=True, timeout=timeout_s, event_hooks={"response": [_stay_safe]}
    )
    return lambda url, headers: client.stream("GET", url, headers=dict(headers))


def _stay_safe(response: httpx.Response) -> None:
    target = response.next_request
    if (
        target is not None
        and response.request.url.scheme == "https"
        and target.url.scheme != "https"
    ):
        raise httpx.RequestError("a redirect to an unprotected address", request=response.request)


def _validator(response: httpx.Response) -> str:
    tag = response.headers.get("ETag", "")
    return "" if tag.startswith("W/") else tag  # a weak one does not promise the same bytes


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:120]


def _disk(error: OSError, path: str) -> StorageFull:
    if error.errno in FULL:
        return StorageFull(
            f"The disk is full: {path} is not complete. Make room and start again; what is there is kept.",
            f"磁盘已满，{path} 没有下载完。请清理空间后重新开始，已下载的部分会保留。",
        )
    return StorageFull(
        f"{path} cannot be written ({error.strerror}). Check the rights of the model folder.",
        f"写不进 {path}（{error.strerror}）。请检查模型目录的权限。",
        code="storage_denied",
    )
