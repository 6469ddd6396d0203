"""Frames between the engine and its workers: two lengths, a JSON header, raw bytes.

Never pickle; blind to what the frames mean.
"""

from __future__ import annotations

import json
import socket
import struct

_LENGTHS = struct.Struct("<II")
RING = struct.Struct("<Q")  # what is sent to a bell: the number of a stream, or 0
MAX_HEADER, MAX_BODY = 1 << 20, 64 << 20


class Closed(Exception):
    """The other side is gone."""


def send(sock: socket.socket, header: dict, body: bytes | memoryview = b"") -> None:
    """Raises Closed, or TimeoutError when the socket has a timeout."""
    text = json.dumps(header, ensure_ascii=False).encode("utf-8")
    body = memoryview(body).cast("B") if len(body) else memoryview(b"")
    try:
        sock.sendall(_LENGTHS.pack(len(text), len(body)) + text)
        if len(body):
            sock.sendall(body)
    except TimeoutError:
        raise
    except OSError as e:
        raise Closed from e


def receive(sock: socket.socket) -> tuple[dict, bytearray]:
    """(header, body).

    Raises Closed at the end or on nonsense, TimeoutError when the socket has a timeout.
    """
    lengths = _LENGTHS.unpack(_exactly(sock, _LENGTHS.size))
    if lengths[0] > MAX_HEADER or lengths[1] > MAX_BODY:
        raise Closed
    try:
        header = json.loads(_exactly(sock, lengths[0]))
    except ValueError as e:
        raise Closed from e
    return header, _exactly(sock, lengths[1])


def _exactly(sock: socket.socket, n: int) -> bytearray:
    out = bytearray(n)
    view, at = memoryview(out), 0
    while at < n:
        try:
            got = sock.recv_into(view[at:])
        except TimeoutError:
            raise
        except OSError as e:
            raise Closed from e
        if not got:
            raise Closed
        at += got
    return out
