"""First byte of sound with the built-in voice, all ways in one run: /v1/audio/speech as pcm and in
every file format, as events, and the page's own WebSocket.

Bare sockets on both sides of the comparison, connections open and warm, the ways taken in turn so
that what else the machine does meets all alike. The clock runs from the last byte of the request to
the first byte that carries sound.

    python scripts/bench_api.py --times 20
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import socket
import statistics
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import httpx

from tests.serve import running

TEXTS = (
    "The kettle is on, sit down.",
    "清晨的风从窗口吹进来。",
    "I will be there at half past nine.",
    "今天的风很温柔，出去走走吧。",
)
FILES = ("pcm", "wav", "mp3", "opus", "aac", "flac")
HEAD_BYTES = 256  # a WAV header with its label is shorter, the first sound longer
NEAR_MS, CODED_MS = (
    3.0,
    60.0,
)  # what is promised: pcm beside the page's way, mp3 and opus beside pcm


class Wire:
    """One kept-open connection; bytes that came but were not asked for yet wait in `_buffer`."""

    def __init__(self, url: str):
        host, port = url.removeprefix("http://").split(":")
        self.host, self._buffer = f"{host}:{port}", b""
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def more(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the studio hung up")
        self._buffer += data

    def until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self.more()
        head, _, self._buffer = self._buffer.partition(mark)
        return head

    def take(self, n: int) -> bytes:
        while len(self._buffer) < n:
            self.more()
        data, self._buffer = self._buffer[:n], self._buffer[n:]
        return data


class Http:
    """POST /v1/audio/speech, over and over on one connection."""

    def __init__(self, url: str, **fields):
        self._wire, self._fields = Wire(url), fields

    def first_s(self, text: str, seed: int) -> float:
        body = json.dumps(
            {"input": text, "voice": "starter-en-mid", "seed": seed, "stream": True, **self._fields}
        ).encode()
        self._wire.socket.sendall(
            f"POST /v1/audio/speech HTTP/1.1\r\nHost: {self._wire.host}\r\nContent-Type:"
            f" application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        began, first = time.perf_counter(), 0.0
        head = self._wire.until(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            raise RuntimeError(head[:200])
        n_bytes = 0
        while size := int(self._wire.until(b"\r\n"), 16):
            n_bytes += len(self._wire.take(size))
            self._wire.take(2)
            if not first and n_bytes > (
                HEAD_BYTES if self._fields["response_format"] == "wav" else 0
            ):
                first = time.perf_counter() - began
        self._wire.take(2)
        return first


class Page:
    """The page's own way: its WebSocket, masked text frames out, frames of samples in."""

    def __init__(self, url: str):
        with httpx.Client(base_url=url) as http:
            token = http.post("/tts/session").json()["token"]
            cookie = "; ".join(f"{k}={v}" for k, v in http.cookies.items())
        self._wire, self._seq = Wire(url), 0
        key = base64.b64encode(os.urandom(16)).decode()
        self._wire.socket.sendall(
            f"GET /tts/ws HTTP/1.1\r\nHost: {self._wire.host}\r\nUpgrade: websocket\r\nConnection:"
            f" Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nCookie:"
            f" {cookie}\r\n\r\n".encode()
        )
        self._wire.until(b"\r\n\r\n")
        self._send({"op": "hello", "v": 1, "token": token, "locale": "en"})
        self._frame()

    def _send(self, message: dict) -> None:
        data = json.dumps(message).encode()
        size = (
            struct.pack("!B", 0x80 | len(data))
            if len(data) < 126
            else struct.pack("!BH", 0x80 | 126, len(data))
        )
        self._wire.socket.sendall(b"\x81" + size + bytes(4) + data)  # a mask of zeros is a mask too

    def _frame(self) -> tuple[int, bytes]:
        kind, size = self._wire.take(2)
        size &= 0x7F
        if size > 125:
            size = int.from_bytes(self._wire.take(2 if size == 126 else 8), "big")
        return kind & 0x0F, self._wire.take(size)

    def first_s(self, text: str, seed: int) -> float:
        self._seq += 1
        self._send(
            {
                "op": "start",
                "seq": self._seq,
                "params": {"input": text, "voice": "starter-en-mid", "seed": seed},
                "rate": 24000,
                "credit": 1 << 40,
            }
        )
        began, first = time.perf_counter(), 0.0
        while True:
            kind, data = self._frame()
            if kind == 2 and not first:
                first = time.perf_counter() - began
            elif kind == 1 and (message := json.loads(data))["op"] in ("end", "error"):
                if message["op"] == "error":
                    raise RuntimeError(message["text"])
                return first


def main() -> int:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--times", type=int, default=20)
    ask.add_argument("--json", type=Path)
    wish = ask.parse_args()
    with running(engine="builtin", env={"KAIKOU_STARTS_PER_MINUTE": "100000"}) as studio:
        ways = {
            "page": Page(studio.url),
            **{kind: Http(studio.url, response_format=kind) for kind in FILES},
            "pcm events": Http(studio.url, response_format="pcm", stream_format="sse"),
        }
        times_ms: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(-2, wish.times):  # two rounds to warm up
            names = list(ways)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds = ways[name].first_s(TEXTS[turn % len(TEXTS)], turn + 2)
                if turn >= 0:
                    times_ms[name].append(1000 * seconds)
    middle = {name: statistics.median(ms) for name, ms in times_ms.items()}
    print(f"{'way':<12}{'median ms':>10}{'P95 ms':>9}{'min ms':>9}   over pcm ms")
    for name, ms in times_ms.items():
        print(
            f"{name:<12}{middle[name]:>10.1f}{sorted(ms)[int(0.95 * (len(ms) - 1))]:>9.1f}"
            f"{min(ms):>9.1f}{middle[name] - middle['pcm']:>14.1f}"
        )
    near, coded = (
        abs(middle["pcm"] - middle["page"]),
        {k: middle[k] - middle["pcm"] for k in ("mp3", "opus")},
    )
    print(
        f"pcm beside the page's way: {near:.1f} ms (promised {NEAR_MS:g}); mp3 {coded['mp3']:+.1f}"
        f" ms, opus {coded['opus']:+.1f} ms (promised {CODED_MS:g})"
    )
    if wish.json:
        wish.json.write_text(json.dumps({"ms": times_ms, "median_ms": middle}))
    return 0 if near <= NEAR_MS and max(coded.values()) <= CODED_MS else 1


if __name__ == "__main__":
    sys.exit(main())
