"""Requests in, answers out: small fixed headers and raw bytes, no pickles.

The other side is `webui/audio/worker_process.py`.
"""

import select
import struct

REQUEST = struct.Struct("<4sQ16s4d")  # magic, payload bytes, kind, four numbers of the task
ANSWER = struct.Struct("<4sB3IQ")  # magic, state, rate Hz, source rate Hz, channels, payload bytes


def receive(source, idle_s):
    """(kind, four numbers, payload), or None when the studio closed the pipe or nothing came for
    `idle_s` (0 = wait for ever).
    """
    if idle_s and not select.select([source], [], [], idle_s)[0]:
        return None
    head = source.read(REQUEST.size)
    if len(head) < REQUEST.size:
        return None
    _, size, kind, *numbers = REQUEST.unpack(head)
    payload = source.read(size)
    return (kind.rstrip(b"\0").decode("ascii"), numbers, payload) if len(payload) == size else None


def answer(sink, state, rate=0, source_hz=0, channels=0, payload=b""):
    sink.write(ANSWER.pack(b"KKa1", state, rate, source_hz, channels, len(payload)))
    sink.write(payload)
    sink.flush()
