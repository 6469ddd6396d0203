"""A small WebSocket client of the stream protocol, for tests."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

from websockets.sync.client import connect

FRAME = struct.Struct("<HHIQ")


@dataclass
class Heard:
    messages: list[dict] = field(default_factory=list)
    pcm: bytearray = field(default_factory=bytearray)
    frames: list[tuple[int, int, int]] = field(default_factory=list)  # (seq, start, n)

    def of(self, op: str) -> list[dict]:
        return [m for m in self.messages if m["op"] == op]


class Socket:
    def __init__(self, studio, client=None, locale: str = "en", headers: dict | None = None):
        self.http = client or studio.client()
        self.token = self.http.post("/tts/session").json()["token"]
        cookie = "; ".join(f"{k}={v}" for k, v in self.http.cookies.items())
        self.ws = connect(
            studio.url.replace("http", "ws", 1) + "/tts/ws",
            compression=None,
            max_size=None,
            proxy=None,
            legacy=True,
            additional_headers={"Cookie": cookie, **(headers or {})},
        )
        self.send(op="hello", v=1, token=self.token, locale=locale)
        self.ready = self.recv()
        self.seq = 0

    def send(self, **fields) -> None:
        self.ws.send(json.dumps(fields))

    def recv(self, timeout: float = 20):
        raw = self.ws.recv(timeout)
        return raw if isinstance(raw, bytes) else json.loads(raw)

    def start(self, params: dict, credit: int = 1 << 40, **more) -> int:
        self.seq += 1
        self.send(
            op="start",
            seq=self.seq,
            params={"voice": "starter-zh-high", **params},
            rate=24000,
            credit=credit,
            **more,
        )
        return self.seq

    def hear(
        self,
        seq: int | None = None,
        until: tuple = ("end", "error", "cancelled"),
        reply: Heard | None = None,
        timeout: float = 20,
    ) -> Heard:
        reply = reply or Heard()
        while True:
            message = self.recv(timeout)
            if isinstance(message, bytes):
                magic, _, s, start = FRAME.unpack_from(message)
                assert magic == 0x4B01
                if seq is None or s == seq:
                    assert start == (
                        reply.frames[-1][1] + reply.frames[-1][2] if reply.frames else start
                    ), "a hole between frames"
                    reply.frames.append((s, start, (len(message) - FRAME.size) // 2))
                    reply.pcm += message[FRAME.size :]
                continue
            reply.messages.append(message)
            if message["op"] in until and (seq is None or message.get("seq") == seq):
                return reply

    def say(self, params: dict, **kw) -> Heard:
        return self.hear(self.start(params, **kw))

    def close(self) -> None:
        self.ws.close()
