"""A small client of the text-in socket, for tests: writes a text, hears its sound, and keeps the
order in which both went.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from websockets.sync.client import connect

from tests.api.client import FRAME

PATH = "/v1/audio/speech/stream"
ENDS = ("speech.audio.done", "speech.cancelled", "speech.failed")


@dataclass
class Heard:
    messages: list[dict] = field(default_factory=list)
    pcm: bytearray = field(default_factory=bytearray)
    frames: list[tuple[int, int]] = field(default_factory=list)  # (first sample, samples)

    def of(self, kind: str) -> list[dict]:
        return [m for m in self.messages if m["type"] == kind]

    @property
    def end(self) -> dict:
        return self.messages[-1]


class Typist:
    def __init__(self, studio, headers: dict | None = None, path: str = PATH):
        self.ws = connect(
            studio.url.replace("http", "ws", 1) + path,
            compression=None,
            max_size=None,
            proxy=None,
            legacy=True,
            additional_headers=headers,
        )

    def send(self, **fields) -> None:
        self.ws.send(json.dumps(fields))

    def recv(self, timeout: float = 20) -> dict | bytes:
        raw = self.ws.recv(timeout)
        return raw if isinstance(raw, bytes) else json.loads(raw)

    def start(self, **fields) -> int:
        """Number of the request."""
        self.send(type="start", **{"voice": "starter-zh-high", "seed": 5, **fields})
        while (message := self.recv())["type"] == "speech.cancelled":
            pass
        assert message["type"] == "speech.started", message
        return message["request"]

    def text(self, *deltas: str) -> None:
        for delta in deltas:
            self.send(type="text", delta=delta)

    def hear(
        self,
        until=ENDS,
        reply: Heard | None = None,
        request: int | None = None,
        timeout: float = 20,
    ) -> Heard:
        """Up to a message of one of these types, or to the first sound with until="sound"."""
        reply = reply or Heard()
        while True:
            message = self.recv(timeout)
            if isinstance(message, dict) and message["type"] == "speech.audio.delta":
                start, sound = message["start"], base64.b64decode(message["audio"])
            elif isinstance(message, dict):
                reply.messages.append(message)
                if message["type"] in until and (request is None or message["request"] == request):
                    return reply
                continue
            else:
                magic, _, seq, start = FRAME.unpack_from(message)
                assert magic == 0x4B01 and (request is None or seq == request)
                sound = message[FRAME.size :]
            assert start == len(reply.pcm) // 2, "a hole between frames"
            reply.frames.append((start, len(sound) // 2))
            reply.pcm += sound
            if until == "sound":
                return reply

    def say(self, *deltas: str, **fields) -> Heard:
        request = self.start(**{"credit": 1 << 40, **fields})
        self.text(*deltas)
        self.send(type="end")
        return self.hear(request=request)

    def close(self) -> None:
        self.ws.close()
