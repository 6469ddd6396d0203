"""A server on a real socket that misbehaves as it is told: what a text gets is written in the text,
e.g. "reset reset ok seven".

The words before the first other one are its answers, one for each time it is asked, the last of
them for ever after. A sound is made of text and seed alone, so that a test knows every byte. In a
batch the same words; "half" breaks the zip off behind the lines before it, and "poison" is a line
that the studio itself gives up.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import socket
import struct
import threading
import zipfile
from collections import Counter
from contextlib import contextmanager

RATE = 24000
WORDS = (
    "ok",
    "busy",
    "full",
    "error",
    "reset",
    "stall",
    "half",
    "chunk",
    "short",
    "page",
    "noise",
    "close",
    "bad",
    "odd",
    "old",
    "login",
    "moved",
    "empty",
    "away",
    "poison",
)


def pcm_of(text: str, seed: int, n: int = 400) -> bytes:
    unit = hashlib.sha256(f"{seed}:{text}".encode()).digest()
    return (unit * (2 * n // len(unit) + 1))[: 2 * n]


def wav(pcm: bytes, n_told: int | None = -1) -> bytes:
    """n_told: bytes of samples that the header speaks of; None = endless."""
    size = 0xFFFFFFFF if n_told is None else len(pcm) if n_told < 0 else n_told
    whole = 0xFFFFFFFF if n_told is None else 36 + size
    return (
        struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            b"RIFF",
            whole,
            b"WAVE",
            b"fmt ",
            16,
            1,
            1,
            RATE,
            RATE * 2,
            2,
            16,
            b"data",
            size,
        )
        + pcm
    )


def zipped(rows: list[tuple[str, bytes | None]]) -> bytes:
    out, lines = io.BytesIO(), []
    with zipfile.ZipFile(out, "w") as z:
        for n, (text, data) in enumerate(rows, 1):
            if data is not None:
                z.writestr(f"{n:04d}_x.wav", data)
            lines.append(
                {
                    "line": n,
                    "text": text,
                    "state": "done" if data else "failed",
                    "error": None if data else {"code": "fault", "message": "poison"},
                }
            )
        z.writestr("manifest.json", json.dumps({"lines": lines}))
    return out.getvalue()


class Fire:
    def __init__(self, n_samples: int = 400):
        self.n_asked: Counter[str] = Counter()
        self.now = self.most = self.connections = self.n_samples = 0
        self.n_samples, self.bodies, self.keys, self.slow_s = n_samples, [], [], 0.0
        self.on_ask = lambda: None
        self._writers: set[asyncio.StreamWriter] = set()

    # ---- the socket ------------------------------------------------------------------------------
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode("latin-1").split("\r\n")
                headers = {
                    k.lower(): v for k, _, v in (line.partition(": ") for line in rest if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.keys.append(headers.get("authorization"))
                self.now += 1
                self.most = max(self.most, self.now)
                try:
                    await self._answer(first.split()[1], body, writer)
                finally:
                    self.now -= 1
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, path: str, body: bytes, writer) -> None:
        params = json.loads(body) if body.startswith(b"{") else {}
        self.bodies.append(params)
        asks = params.get("requests") or [params]
        behaviours = [self._behaviour_of(a.get("input", "")) for a in asks]
        self.on_ask()
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        if path.endswith("/batch"):
            return await self._batch(asks, behaviours, writer)
        await self._single(asks[0], behaviours[0], writer)

    def _behaviour_of(self, text: str) -> str:
        words = []
        for w in text.split():
            if w not in WORDS:
                break
            words.append(w)
        self.n_asked[text] += 1
        return (words or ["ok"])[min(self.n_asked[text], max(1, len(words))) - 1]

    # ---- answers ---------------------------------------------------------------------------------
    async def _single(self, ask: dict, behaviour: str, writer) -> None:
        seed = (
            ask.get("seed", -1) if ask.get("seed", -1) >= 0 else self.n_asked[ask["input"]]
        )  # another one each time when none is asked for
        pcm = pcm_of(ask.get("input", ""), seed, self.n_samples)
        data, paced, headers = (
            wav(pcm),
            ask.get("stream", False),
            {"X-Seed": str(seed), "X-Engine": "fire"},
        )
        if behaviour == "chunk" or (behaviour == "ok" and paced):
            out = _head(200, {"Transfer-Encoding": "chunked", **headers})
            data = wav(pcm, None)
            parts = [data[i : i + 333] for i in range(0, len(data), 333)]
            for part in parts if behaviour == "ok" else parts[:2]:
                out += b"%x\r\n%s\r\n" % (len(part), part)
            writer.write(out + (b"0\r\n\r\n" if behaviour == "ok" else b""))
            await writer.drain()
            return None if behaviour == "ok" else writer.close()
        if behaviour == "ok":
            return await _send(writer, 200, data, headers)
        if behaviour == "half":
            writer.write(
                _head(200, {"Content-Length": str(len(data)), **headers}) + data[: len(data) // 2]
            )
            await writer.drain()
            return writer.close()
        if behaviour == "short":
            return await _send(writer, 200, wav(pcm[:100], len(pcm)), headers)
        if behaviour == "old":  # HTTP/1.0, endless header, ends by closing: whole or not, who knows
            writer.write(b"HTTP/1.0 200 OK\r\nX-Engine: fire\r\n\r\n" + wav(pcm[:300], None))
            await writer.drain()
            return writer.close()
        if behaviour == "odd":
            return await _send(writer, 200, wav(pcm + b"x", None), headers)
        return await self._wrong(behaviour, writer)

    async def _wrong(self, behaviour: str, writer) -> None:
        if behaviour == "reset":
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            return writer.transport.abort()
        if behaviour == "close":
            return writer.close()
        if behaviour == "stall":
            writer.write(_head(200, {"Content-Length": "5000"}) + b"RIFF")
            await writer.drain()
            return await asyncio.sleep(3600)
        if behaviour == "noise":
            writer.write(b"\x16\x03\x01 not http at all\r\n\r\n")
            await writer.drain()
            return writer.close()
        if behaviour == "page":
            return await _send(writer, 200, b"<!doctype html><title>proxy</title>" * 4)
        if behaviour == "empty":
            return await _send(writer, 200, b"")
        if behaviour == "moved":
            return await _send(writer, 303, b"", {"Location": "/login"})
        status, more = {
            "busy": (429, {"Retry-After": "1"}),
            "full": (429, {}),
            "error": (500, {}),
            "bad": (422, {}),
            "login": (401, {}),
            "away": (503, {"Retry-After": "0"}),
        }[behaviour]
        code = {
            "busy": "rate_limited",
            "full": "too_many_streams",
            "bad": "bad_field",
            "login": "login_needed",
        }.get(behaviour, "fault")
        return await _send(
            writer,
            status,
            json.dumps(
                {"error": {"message": f"no: {behaviour}", "type": "x", "param": None, "code": code}}
            ).encode(),
            more,
        )

    async def _batch(self, asks: list[dict], whats: list[str], writer) -> None:
        refusal = next(
            (w for w in whats if w not in ("ok", "half", "odd", "short", "poison")), None
        )
        if refusal:
            return await self._wrong("close" if refusal in ("old", "chunk") else refusal, writer)
        pcms = [pcm_of(a["input"], a["seed"], self.n_samples) for a in asks]
        data = zipped(
            [
                (
                    a["input"],
                    (
                        None
                        if w == "poison"
                        else wav(pcm[:100], len(pcm))
                        if w == "short"
                        else wav(pcm)
                    ),
                )
                for a, w, pcm in zip(asks, whats, pcms)
            ]
        )
        if "half" in whats:
            cut = {
                e.filename: e.header_offset for e in zipfile.ZipFile(io.BytesIO(data)).infolist()
            }[f"{whats.index('half') + 1:04d}_x.wav"] + 100
            writer.write(
                _head(200, {"Transfer-Encoding": "chunked"}) + b"%x\r\n%s\r\n" % (cut, data[:cut])
            )
            await writer.drain()
            return writer.close()
        if "odd" in whats:  # one byte of the samples is another one than the checksum says
            at = data.index(pcms[whats.index("odd")])
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        await _send(writer, 200, data)


def _head(status: int, headers: dict) -> bytes:
    return (
        f"HTTP/1.1 {status}"
        f" X\r\n{''.join(f'{k}: {v}' + chr(13) + chr(10) for k, v in headers.items())}\r\n".encode()
    )


async def _send(writer, status: int, body: bytes, headers: dict | None = None) -> None:
    writer.write(_head(status, {"Content-Length": str(len(body)), **(headers or {})}) + body)
    await writer.drain()


@contextmanager
def burning(**kw):
    """The server in a thread of its own; yields (url, Fire)."""
    fire, ready, server_state = Fire(**kw), threading.Event(), {}

    async def run() -> None:
        server = await asyncio.start_server(fire.serve, "127.0.0.1", 0, limit=1 << 24)
        server_state.update(
            port=server.sockets[0].getsockname()[1],
            loop=asyncio.get_running_loop(),
            end=asyncio.Event(),
        )
        ready.set()
        await server_state["end"].wait()
        server.close()
        for writer in list(fire._writers):
            writer.transport.abort()
        own_tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in own_tasks:
            task.cancel()
        await asyncio.gather(*own_tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{server_state['port']}", fire
    finally:
        server_state["loop"].call_soon_threadsafe(server_state["end"].set)
        thread.join(10)
