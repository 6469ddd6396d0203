"""A local server of one small model that breaks off, lies, refuses or knows no ranges, and a fetcher that asks it. No tests here."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from webui.store import models as store
from webui.store.models import Model, ModelFetcher

BIG = bytes(range(256)) * 12000  # 3 MB: several blocks
SMALL = b"sizes: 1\n"
CONTENT = {"model.yaml": SMALL, "part/big.pt": BIG}


class Origin(ThreadingHTTPServer):
    """Serves `content`; `behave` may take over an answer. `asked` are (path, Range) of all requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.content, self.asked, self.tag, self.ranges, self.length = (
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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/models/some"

    def ranges_asked(self, name: str) -> list[str | None]:
        return [r for p, r in self.asked if p.endswith(name)]


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.asked.append((self.path, wanted))
        data = server.content.get(self.path.removeprefix("/models/some/"))
        if server.status or data is None:
            self.send_error(server.status.pop(0) if server.status else 404)
            return
        start = (
            int(re.match(r"bytes=(\d+)-", wanted)[1])
            if wanted and server.ranges and self.headers.get("If-Range", server.tag) == server.tag
            else 0
        )
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if server.length:
            self.send_header("Content-Length", str(len(data) - start))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        body = data[start:]
        if server.hang and len(body) > 100_000:
            self.wfile.write(body[: len(body) // 2])
            server.half_way.set()
            server.hang.wait(30)
            return
        self.wfile.write(
            body[: server.cuts.pop(0)] if server.cuts and self.path.endswith("big.pt") else body
        )


class NoWait(threading.Event):
    """Never waits; remembers how long it was asked to."""

    def __init__(self):
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return self.is_set()


def model(exact: bool = False, sha256: str | None = None, size: int = len(BIG)) -> Model:
    return Model(
        "Some",
        {"modelscope": "us/Some"},
        (
            store.FileSpec("model.yaml", len(SMALL)),
            store.FileSpec("part/big.pt", size, exact, sha256),
        ),
    )


def fetcher(origin: Origin, root: Path, *args, free: int = 10**12, **kw) -> ModelFetcher:
    return ModelFetcher(root, origin.url, model(*args, **kw), free_bytes=lambda path: free)


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
