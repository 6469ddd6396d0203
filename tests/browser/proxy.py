"""A reverse proxy under a sub-path, as studios stand behind in the world: it buffers responses like
nginx's proxy_buffering (a piece goes out when the next one has come, unless X-Accel-Buffering says
no), passes upgrades, and breaks on request.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit


class Proxy:
    def __init__(self, target: str, prefix: str):
        at = urlsplit(target)
        self._target, self._prefix = (at.hostname, at.port), prefix
        self._loop = asyncio.new_event_loop()
        self._sockets: set[asyncio.StreamWriter] = set()  # both ends of every upgraded connection
        self._tasks: set[asyncio.Task] = set()
        self.is_down = False  # refuse new connections
        self.refuses_upgrades = False
        self.drop_frames = 0  # swallow this many of the next binary frames from the server
        # the next binary frame from the server does not pass: cut() comes before it
        self.cuts_next = False
        self.spared_frames = 0  # so many pass before either happens
        self.upgrades = 0
        # when an upgraded connection to the target was last given up, on time.perf_counter
        self.closed_at = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._prefix}"

    @contextmanager
    def running(self):
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._call(self._close(server))
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(5)
            self._loop.close()

    def _call(self, job):
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(10)

    async def _close(self, server) -> None:
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every upgraded connection breaks, as when a cable is pulled on the proxy's side."""

        async def abort():
            self._abort()

        self._call(abort())

    def _abort(self) -> None:
        for writer in list(self._sockets):
            writer.transport.abort()

    async def _serve(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._request(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # either side left, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _request(self, reader, writer) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")[:-2]
        method, path, version = first.split(" ")
        names = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        is_upgrade = names.get("upgrade", "").lower() == "websocket"
        if (
            self.is_down
            or (is_upgrade and self.refuses_upgrades)
            or not path.startswith(self._prefix)
        ):
            writer.write(
                b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            return await writer.drain()
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        header_lines = [
            line for line in lines if is_upgrade or not line.lower().startswith("connection:")
        ]
        up_writer.write(
            "\r\n".join(
                [
                    f"{method} {path[len(self._prefix) :] or '/'} {version}",
                    *header_lines,
                    *([] if is_upgrade else ["Connection: close"]),
                    "",
                    "",
                ]
            ).encode("latin-1")
        )
        if body := int(names.get("content-length", 0)):
            up_writer.write(await reader.readexactly(body))
        try:
            await (
                self._join(reader, writer, up_reader, up_writer)
                if is_upgrade
                else self._buffered(reader, writer, up_reader)
            )
        finally:
            up_writer.close()

    async def _buffered(self, reader, writer, up_reader) -> None:
        head = await up_reader.readuntil(b"\r\n\r\n")
        at_once = b"x-accel-buffering: no" in head.lower()
        writer.write(head)
        disconnect_task, buffer = (
            asyncio.ensure_future(reader.read(1)),
            b"",
        )  # the client leaving ends the request upstream too
        try:
            while True:
                more = asyncio.ensure_future(up_reader.read(65536))
                await asyncio.wait({more, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
                if not more.done() or not (data := more.result()):
                    more.cancel()
                    break
                writer.write(data if at_once else buffer)
                buffer = data
                await writer.drain()
            if not at_once:
                writer.write(buffer)
                await writer.drain()
        finally:
            disconnect_task.cancel()

    async def _join(self, reader, writer, up_reader, up_writer) -> None:
        self.upgrades += 1
        self._sockets |= {writer, up_writer}
        ways = []
        try:
            writer.write(await up_reader.readuntil(b"\r\n\r\n"))
            ways = [
                asyncio.ensure_future(self._pipe(reader, up_writer)),
                asyncio.ensure_future(self._frames(up_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            up_writer.close()
            self.closed_at = time.perf_counter()
            self._sockets -= {writer, up_writer}

    async def _pipe(self, reader, writer) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def _frames(self, reader, writer) -> None:
        """Server to client, frame by frame (never masked), so that single ones can be lost."""
        while True:
            head = await reader.readexactly(2)
            size = head[1] & 127
            more = await reader.readexactly({126: 2, 127: 8}.get(size, 0))
            body = await reader.readexactly(int.from_bytes(more, "big") if more else size)
            if head[0] & 15 == 2 and (self.drop_frames or self.cuts_next):
                if self.spared_frames:
                    self.spared_frames -= 1
                elif self.cuts_next:
                    self.cuts_next = False
                    return self._abort()
                else:
                    self.drop_frames -= 1
                    continue
            writer.write(head + more + body)
            await writer.drain()
