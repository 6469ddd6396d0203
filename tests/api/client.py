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
        heard: Heard | None = None,
        timeout: float = 20,
    ) -> Heard:
        heard = heard or Heard()
        while True:
            got = self.recv(timeout)
            if isinstance(got, bytes):
                magic, _, s, start = FRAME.unpack_from(got)
                assert magic == 0x4B01
                if seq is None or s == seq:
                    assert start == (
                        heard.frames[-1][1] + heard.frames[-1][2] if heard.frames else start
                    ), "a hole between frames"
                    heard.frames.append((s, start, (len(got) - FRAME.size) // 2))
                    heard.pcm += got[FRAME.size :]
                continue
            heard.messages.append(got)
            if got["op"] in until and (seq is None or got.get("seq") == seq):
                return heard

    def say(self, params: dict, **kw) -> Heard:
        return self.hear(self.start(params, **kw))

    def close(self) -> None:
        self.ws.close()
