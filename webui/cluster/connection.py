"""One WebSocket from a studio to a replica, as blocking calls. Knows no engines."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from ..errors import error_from_dict
from .messages import BEAT_S, MAX_MESSAGE, PROTOCOL, SILENT_S, Damaged, pack, unpack

CONNECT_S = 5.0


class Lost(Exception):
    """The replica is gone, silent, or another than was wanted: somebody else may do it."""


class WrongVersion(Lost):
    """Its engine makes other samples than the one that was begun with."""


class Refused(Lost):
    """Nobody of the fleet takes it now: all are busy, or the key is wrong."""

    def __init__(self, status: int):
        super().__init__(f"HTTP {status}")
        self.status = status


class Connection:
    """version: of the engine that is wanted, "" = any. Raises Lost when it cannot be made."""

    def __init__(self, address: str, key: str, version: str = ""):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self._socket = connect(
                address,
                additional_headers=headers,
                compression=None,
                max_size=MAX_MESSAGE,
                open_timeout=CONNECT_S,
                ping_interval=None,
                close_timeout=0.1,
                proxy=None,
                legacy=True,  # closed by whoever holds the stream, not at the end of a block
            )
        except InvalidStatus as error:
            raise Refused(error.response.status_code) from error
        except (OSError, WebSocketException) as error:
            raise Lost(str(error)) from error
        self.is_closed = False
        try:
            hello, _ = self.receive()
            if hello["op"] != "hello" or hello["protocol"] != PROTOCOL:
                raise WrongVersion(f"protocol {hello.get('protocol')}")
            if version and hello["version"] != version:
                raise WrongVersion(hello["version"])
        except BaseException:
            self.close()
            raise
        self.replica: str = hello["replica"]

    def send(self, words: dict, body: bytes | memoryview = b"") -> None:
        """Raises Lost."""
        try:
            self._socket.send(pack(words, body))
        except (OSError, WebSocketException) as error:
            raise Lost(str(error)) from error

    def receive(self) -> tuple[dict, bytes]:
        """The next message that is no beat.

        Raises Lost, also when nothing at all comes for SILENT_S; and the error that the replica
        sends.
        """
        while True:
            try:
                words, body = unpack(self._socket.recv(SILENT_S))
            except (OSError, WebSocketException, Damaged) as error:
                raise Lost(str(error) or "silent") from error
            if words["op"] == "error":
                raise error_from_dict(words["error"])
            if words["op"] != "beat":
                return words, body

    def close(self) -> None:
        """Idempotent, never waits, any thread: whoever waits in `receive` gets Lost."""
        self.is_closed = True
        with contextlib.suppress(OSError):
            self._socket.socket.shutdown(socket.SHUT_RDWR)


class Beats:
    """Says on every open connection that this studio lives, from one thread."""

    def __init__(self):
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="cluster-beat", daemon=True).start()

    def add(self, connection: Connection) -> None:
        self._connections.add(connection)

    def _run(self) -> None:
        while not self._closing.wait(BEAT_S):
            for connection in list(self._connections):
                if connection.is_closed:
                    self._connections.discard(connection)
                    continue
                with contextlib.suppress(Lost):
                    connection.send({"op": "beat"})

    def close(self) -> None:
        self._closing.set()
