"""What a studio and a replica say to each other: each WebSocket message is a frame of
`webui/frames.py`, a JSON object and raw bytes. Knows no sockets.

From the replica: hello {protocol, engine, version, replica}, then for a stream prompt_wanted,
text_wanted, chunk, error and beat, and the socket's end; for a call answer or error.
From the studio: open {how, request, key, credit, is_replay}, prompt, next {credit, slack_ms},
piece, close, beat; or call {name, ...}. Slack is relative, so clocks never matter.
"""

from __future__ import annotations

import io

from .. import frames
from ..errors import EngineFault

PROTOCOL = 1  # raised with every change that an older side would misread
PATH = "/engine"
BEAT_S = 2.0  # each side says at least this often that it lives
SILENT_S = 6.0  # without a word the other side counts as lost
BUSY_RETRY_S = 2.0  # after which a stream that found no room may be asked for again
WINDOW = 2  # chunks that may be made beyond those the reader has taken
MAX_MESSAGE = frames.MAX_HEADER + frames.MAX_BODY


class Damaged(EngineFault):
    """What came is not one of our messages."""

    def __init__(self):
        super().__init__("bad_frame.fleet")


def pack(words: dict, body: bytes | memoryview = b"") -> bytes:
    """Raises frames.Oversized."""
    return b"".join(frames.pack(words, body))


def unpack(data: bytes | str) -> tuple[dict, bytes]:
    """(words, body). Raises Damaged."""
    try:
        words, body = frames.receive(io.BytesIO(data).read)
        if isinstance(words["op"], str):
            return words, body
    except (frames.Closed, KeyError, TypeError) as error:
        raise Damaged from error
    raise Damaged
