"""Replicas without Ray, for tests: in this process, or each in one of its own behind a proxy that
gives every connection to the next replica that lives, as the fleet's proxy does.

As a program, a replica: python -m tests.engine.fleet PORT VERSION STREAMS
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import uvicorn

from tests.engine.fake import FakeEngine
from tests.serve import free_port
from webui.cluster.remote import ClusterEngine
from webui.cluster.replica import Replica, build_app

STALL_S = 30.0


@contextlib.contextmanager
def served(replica: Replica) -> Iterator[int]:
    """The port of a replica in this process."""
    port = free_port()
    config = uvicorn.Config(
        build_app(replica), port=port, log_level="error", ws="websockets-sansio", loop="asyncio"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        replica.scheduler.close()


@contextlib.contextmanager
def joined(fleet: int | str, key: str = "") -> Iterator[ClusterEngine]:
    """A studio's engine that has found the fleet at a port or an address."""
    engine = ClusterEngine(f"127.0.0.1:{fleet}" if isinstance(fleet, int) else fleet, key)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


class ReplicaProcess:
    def __init__(self, version: str = "1", max_streams: int = 1 << 16):
        self.port, self.version = free_port(), version
        argv = [sys.executable, "-m", "tests.engine.fleet", str(self.port), version]
        argv += [str(max_streams)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)


class Proxy:
    """A TCP proxy: each connection goes to the next of `ports`.

    cut_after: bytes from a replica after which its connection breaks, one entry a connection; those
    beyond the list are whole. is_deaf: nothing from replicas passes any more.
    """

    def __init__(self, *ports: int, cut_after: tuple[int, ...] = ()):
        self.ports, self._cuts, self.is_deaf = list(ports), list(cut_after), False
        self._next = itertools.count()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def take_turns(self, *places: int) -> None:
        """The next connections go to the ports at these places."""
        self._next = iter(places)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                port = self.ports[next(self._next) % len(self.ports)]
            except OSError:
                return
            try:
                replica = socket.create_connection(("127.0.0.1", port))
            except OSError:
                client.close()
                continue
            # what opens no stream, such as a question of how the fleet is, is never cut
            is_stream = b"GET /engine" in client.recv(4096, socket.MSG_PEEK)
            cut = self._cuts.pop(0) if is_stream and self._cuts else None
            for source, sink, most in ((client, replica, None), (replica, client, cut)):
                threading.Thread(
                    target=self._pass, args=(source, sink, most, sink is client), daemon=True
                ).start()

    def _pass(
        self, source: socket.socket, sink: socket.socket, most: int | None, is_back: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_back and self.is_deaf:
                    continue
                sink.sendall(data if most is None else data[:most])
                most = None if most is None else most - len(data)
                if most is not None and most <= 0:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()


def main() -> None:
    port, version, max_streams = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    engine = FakeEngine(lanes=4, version=version)
    engine.start()
    app = build_app(Replica(engine, STALL_S, max_streams=max_streams))

    @app.on_event("startup")
    def tell() -> None:
        print("ready", flush=True)

    uvicorn.run(app, port=port, log_level="error", ws="websockets-sansio", loop="asyncio")


if __name__ == "__main__":
    main()
