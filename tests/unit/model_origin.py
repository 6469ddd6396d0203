"""A local server of one small model that speaks the routes of both hubs and of a plain folder; it
breaks off, lies, refuses, redirects or knows no ranges. And a fetcher that asks it. No tests here.
"""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, unquote, urlsplit

from webui.store import model_files as store
from webui.store.model_files import Model, ModelFetcher
from webui.store.model_hub import HuggingFace, ModelScope

BIG = bytes(range(256)) * 12000  # 3 MB: several blocks
SMALL = b"sizes: 1\n"
CONTENT = {"model.yaml": SMALL, "part/big.pt": BIG}
HUBS = ("modelscope", "hf-mirror")
NAMES = {"modelscope": "us/Some", "hf-mirror": "US/Some"}
_FILE = (
    r"^/models/some/(.+)$",
    r"^/cdn/(.+)$",
    r"^/[^/]+/[^/]+/resolve/main/(.+)$",
    r"^/api/v1/models/[^/]+/[^/]+/repo\?.*FilePath=([^&]+)",
)


class Origin(ThreadingHTTPServer):
    """Serves `content`.

    `requests` are (path of the file, Range) of every GET that a redirect did not answer.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.content, self.requests, self.tag, self.ranges, self.length = (
            dict(CONTENT),
            [],
            '"v1"',
            True,
            True,
        )
        self.cuts: list[int] = []  # the next answers of big.pt end after so many bytes
        self.status: list[int] = []  # the next answers are these
        self.hang: threading.Event | None = None  # big files stop half-way until this is set
        self.half_way = threading.Event()
        self.redirect = ""  # where files really lie, with {path} in it
        self.second_redirect = ""  # where those are sent on to that followed the first one
        self.statuses: dict[str, int] = {}  # the status instead of a file
        self.headers: list[str] = []  # of every request
        self.sums: dict[str, str] = {}  # checksums that are stated instead of the right ones
        self.paths: list[str] = []  # as asked, of everything

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.base}/models/some"

    def ranges_asked(self, name: str) -> list[str | None]:
        return [r for p, r in self.requests if p.endswith(name)]

    def sum_of(self, name: str) -> str:
        return self.sums.get(name) or hashlib.sha256(self.content[name]).hexdigest()


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(has_body=False)

    def do_GET(self):
        self.answer(has_body=True)

    def answer(self, has_body: bool):
        server, url = self.server, urlsplit(self.path)
        server.paths.append(self.path)
        server.headers.append(str(self.headers))
        name = next((unquote(m[1]) for form in _FILE if (m := re.match(form, self.path))), "")
        if name in server.statuses:
            self.send_error(server.statuses[name])
            return None
        data = server.content.get(name)
        target = server.second_redirect if url.path.startswith("/cdn/") else server.redirect
        is_moved = bool(target)
        range_header = self.headers.get("Range")
        if has_body and not (is_moved and data is not None):
            server.requests.append((name or url.path, range_header))
        if server.status or data is None:
            self.send_error(server.status.pop(0) if server.status else 404)
            return None
        headers = {"ETag": server.tag, "X-Linked-Size": str(len(data)), "X-Repo-Commit": "c" * 40}
        if "resolve/main" in url.path or url.path.startswith("/cdn/"):
            headers["X-Linked-ETag"] = f'"{server.sum_of(name)}"'
        if is_moved:
            headers["Location"] = target.format(path=quote(name))
            return self.head(302, {**headers, "Content-Length": "0"})
        start = (
            int(re.match(r"bytes=(\d+)-", range_header)[1])
            if range_header
            and server.ranges
            and self.headers.get("If-Range", server.tag) == server.tag
            else 0
        )
        if start and start >= len(data):
            self.send_error(416)
            return None
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        if server.length:
            headers["Content-Length"] = str(len(data) - start)
        else:
            del headers["X-Linked-Size"]
        self.head(206 if start else 200, headers)
        return self.body(data[start:]) if has_body else None

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()

    def body(self, body: bytes) -> None:
        server = self.server
        if server.hang and len(body) > 100_000:
            self.wfile.write(body[: len(body) // 2])
            server.half_way.set()
            server.hang.wait(30)
            return
        self.wfile.write(
            body[: server.cuts.pop(0)] if server.cuts and "big.pt" in self.path else body
        )


class NoWait(threading.Event):
    """Never waits."""

    def wait(self, timeout=None):
        return self.is_set()


def _no_sleep(seconds: float) -> None:
    pass


def serve_hubs(origin: Origin, monkeypatch) -> None:
    """Both hubs by their names, at the local server; their other hosts are its own too.
    huggingface_hub does not wait between tries; modelscope_hub waits on the event that ends it,
    which tests bring (NoWait).
    """
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=_no_sleep))
    monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=_no_sleep))
    for name, kind in (("modelscope", ModelScope), ("hf-mirror", HuggingFace)):
        monkeypatch.setitem(store.SOURCES, name, kind(origin.base, ("127.0.0.1",)))


def model(exact: bool = False, sha256: str | None = None, size: int = len(BIG)) -> Model:
    return Model(
        "Some",
        NAMES,
        (
            store.FileSpec("model.yaml", len(SMALL)),
            store.FileSpec("part/big.pt", size, exact, sha256),
        ),
    )


def fetcher(
    origin: Origin, root: Path, *args, free: int = 10**12, source: str = "", **kw
) -> ModelFetcher:
    """source: a hub's name, after `serve_hubs`; "" is the plain folder."""
    return ModelFetcher(root, source or origin.url, model(*args, **kw), lambda path: free)


def files(root: Path) -> set[str]:
    return {
        str(p.relative_to(root))
        for p in root.rglob("*")
        if p.is_file() and not p.name.startswith(".")
    }


def is_whole(root: Path) -> bool:
    return files(root) == set(CONTENT) and all(
        (root / name).read_bytes() == data for name, data in CONTENT.items()
    )
