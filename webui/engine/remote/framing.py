"""Frames between the studio and an engine's process: a small header, JSON for words, raw bytes for
sound. Never pickles; blind to what they mean.
"""

from __future__ import annotations

import json
import socket
import struct

from ...errors import EngineFault, TooLarge

_HEADER = struct.Struct("<4sII")  # magic, bytes of JSON, bytes of body
MAGIC = b"KKh1"
MAX_WORDS, MAX_BODY = 1 << 20, 64 << 20
ONE_CALL = (
    1 << 16
)  # a body up to this size is copied behind its header: one system call, one wake-up of the reader


class Ended(Exception):
    """The other side is gone."""


class Damaged(EngineFault):
    """What came is not a frame: nothing after it can be understood."""

    def __init__(self, what: str):
        super().__init__(
            f"The voice engine sent something that cannot be read ({what}) and is being restarted."
            " Please try again.",
            f"语音引擎发来了无法识别的数据（{what}），正在重启，请再试一次。",
            code="bad_frame",
        )
        self.what = what


def pack(words: dict, body: bytes | bytearray | memoryview = b"") -> list[memoryview]:
    """What to send, in order. Raises TooLarge before anything is sent."""
    text = json.dumps(words, allow_nan=False).encode("ascii")
    view = memoryview(body).cast("B") if len(body) else memoryview(b"")
    if len(text) > MAX_WORDS or len(view) > MAX_BODY:
        raise TooLarge(
            f"This is more than the voice engine takes at once ({MAX_BODY >> 20} MB).",
            f"一次交给语音引擎的数据不能超过 {MAX_BODY >> 20} MB。",
            code="too_large_frame",
        )
    head = _HEADER.pack(MAGIC, len(text), len(view)) + text
    return [memoryview(head + view)] if len(view) <= ONE_CALL else [memoryview(head), view]


def send(sock: socket.socket, words: dict, body: bytes | bytearray | memoryview = b"") -> None:
    """Blocks until the system has taken it. Raises Ended, TooLarge."""
    put(sock, pack(words, body))


def put(sock: socket.socket, parts: list[memoryview]) -> None:
    try:
        for part in parts:
            sock.sendall(part)
    except OSError as error:
        raise Ended from error


def receive(sock: socket.socket) -> tuple[dict, bytearray]:
    """(words, body); blocks. Raises Ended at the end, Damaged on anything that is not a frame."""
    magic, n_words, n_body = _HEADER.unpack(_exactly(sock, _HEADER.size))
    if magic != MAGIC:
        raise Damaged("no frame begins here")
    if n_words > MAX_WORDS or n_body > MAX_BODY:
        raise Damaged("a frame beyond all bounds")
    try:
        words = json.loads(_exactly(sock, n_words))
    except ValueError as error:
        raise Damaged("words that are not JSON") from error
    if not isinstance(words, dict):
        raise Damaged("words that are no object")
    return words, _exactly(sock, n_body)


def _exactly(sock: socket.socket, n: int) -> bytearray:
    out = bytearray(n)
    view, at = memoryview(out), 0
    while at < n:
        try:
            got = sock.recv_into(view[at:])
        except OSError as error:
            raise Ended from error
        if not got:
            raise Ended
        at += got
    return out
