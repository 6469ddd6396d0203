"""Frames between the studio and its processes: a small header of lengths, a JSON object, raw bytes.

Never pickles; blind to what a frame means, and to whether a socket or a pipe carries it. It imports
nothing of the studio: the sound worker loads this file alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

_LENGTHS = struct.Struct("<4sII")  # magic, bytes of JSON, bytes of body
MAGIC = b"KKf1"
RING = struct.Struct("<Q")  # what is sent to a bell instead of a frame: a stream's number, or 0
MAX_HEADER, MAX_BODY = 1 << 20, 64 << 20
# a body up to this size is copied behind its header: one system call, one wake-up of the reader
MAX_JOINED = 1 << 16


class Closed(Exception):
    """The other side is gone."""


class Damaged(Closed):
    """What came is not a frame: nothing after it can be understood. The message says why."""


class Oversized(ValueError):
    """The header or the body is over its limit; nothing was sent."""


def pack(header: dict, body: bytes | memoryview = b"", max_body: int = MAX_BODY) -> list:
    """The bytes to send, in order. Raises Oversized, and ValueError for a header with NaN in it."""
    text = json.dumps(header, allow_nan=False).encode("ascii")
    view = memoryview(body).cast("B") if len(body) else memoryview(b"")
    if len(text) > MAX_HEADER or len(view) > max_body:
        raise Oversized(f"{len(text)} bytes of header, {len(view)} of body")
    head = _LENGTHS.pack(MAGIC, len(text), len(view)) + text
    return [head + view] if len(view) <= MAX_JOINED else [head, view]


def put(write: Callable, parts: list) -> None:
    """Blocks until `write` has taken all of it: the `sendall` of a socket, or the `write` of a
    buffered pipe, which the caller flushes.

    Raises Closed, or TimeoutError when the socket has a timeout.
    """
    try:
        for part in parts:
            write(part)
    except TimeoutError:
        raise
    except OSError as error:
        raise Closed from error


def send(write: Callable, header: dict, body=b"", max_body: int = MAX_BODY) -> None:
    """`pack` and `put`."""
    put(write, pack(header, body, max_body))


def receive(read: Callable[[int], bytes], max_body: int = MAX_BODY) -> tuple[dict, bytes]:
    """(header, body); blocks. read: of a buffered pipe, or of a socket's `makefile("rb")`: n bytes,
    fewer only at the end.

    Raises Closed at the end, Damaged on anything that is not a frame, TimeoutError when the socket
    has a timeout.
    """
    magic, n_header, n_body = _LENGTHS.unpack(_exactly(read, _LENGTHS.size))
    if magic != MAGIC:
        raise Damaged("no frame begins here")
    if n_header > MAX_HEADER or n_body > max_body:
        raise Damaged("a frame beyond all bounds")
    try:
        header = json.loads(_exactly(read, n_header))
    except (ValueError, RecursionError) as error:
        raise Damaged("words that are not JSON") from error
    if not isinstance(header, dict):
        raise Damaged("words that are no object")
    return header, _exactly(read, n_body)


def _exactly(read: Callable[[int], bytes], n: int) -> bytes:
    try:
        data = read(n)
    except TimeoutError:
        raise
    except OSError as error:
        raise Closed from error
    if len(data) < n:
        raise Closed
    return data
