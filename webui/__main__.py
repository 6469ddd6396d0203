"""`python -m webui` or `kaikou`: check what can be checked, open the page, start the engine.

Exit code 2 with one sentence when it cannot start.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading

from .errors import KaikouError
from .logs import to_stderr
from .messages import message
from .settings import Settings, load

SAY_OPEN = "Kaikou 开口: {url}"
GRACE_S = 3  # of streams that are under way when the program ends


def main(argv: list[str] | None = None) -> int:
    log_to_stderr()
    try:
        settings = load(sys.argv[1:] if argv is None else argv)
        listener = listen(settings)
        return serve(settings, listener)
    except KaikouError as error:
        print(f"{error.en}\n{error.zh}", file=sys.stderr)
        return 2


def log_to_stderr() -> None:
    to_stderr()
    for chatty in ("httpx", "httpx2", "httpcore", "httpcore2", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def listen(settings: Settings) -> socket.socket:
    """The listening socket, before anything slow is loaded.

    Raises KaikouError when the address is taken or not ours.
    """
    host, port = settings.server.host, settings.server.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(
            family, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )  # named, or asyncio leaves what it accepts with Nagle: 40 ms for each small answer
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: the kernel itself ends what is not read
            listener.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * settings.limits.unread_s)
            )
        listener.bind((host, port))
        listener.listen(512)
        listener.set_inheritable(False)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise KaikouError("fault.port_taken", port=port, next_port=port + 1) from None
        raise KaikouError(
            "fault.cannot_listen", host=host, port=port, reason=error.strerror or error
        ) from None
    return listener


def serve(settings: Settings, listener: socket.socket) -> int:
    from . import app as root

    app, studio = root.build(settings)
    return run(settings, listener, app, studio, app.state.rpc)


def run(settings: Settings, listener: socket.socket, app, studio, rpc=None) -> int:
    """Serve until interrupted, then end streams, engines and child processes.

    rpc: what else begins and ends with the page, on its event loop.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None) -> None:
            await super().startup(sockets)
            if rpc is not None:
                await rpc.start()

        async def shutdown(self, sockets=None) -> None:
            if rpc is not None:
                await rpc.stop(GRACE_S)
            await super().shutdown(sockets)

    # permessage-deflate would spend a core on compressing noise-like samples
    config = uvicorn.Config(
        app,
        http=connection(settings.limits.unread_s),
        loop="asyncio",  # also where another package brings uvloop
        log_config=None,
        log_level="warning",
        access_log=False,
        ws_per_message_deflate=False,
        ws_max_size=2 << 20,
        timeout_graceful_shutdown=GRACE_S,
        proxy_headers=True,
        ws_ping_interval=20,
        ws_ping_timeout=20,
    )
    server = Server(config)
    url_host = "127.0.0.1" if settings.server.host in ("0.0.0.0", "::") else settings.server.host
    url = (
        f"http://{f'[{url_host}]' if ':' in url_host else url_host}"
        f":{settings.server.port}{settings.server.root_path}"
    )
    print(SAY_OPEN.format(url=url), flush=True)
    if settings.server.share:
        threading.Thread(target=share, args=(settings,), name="share", daemon=True).start()
    failed: list[KaikouError] = []
    if settings.engine.name not in ("auto", "builtin"):
        threading.Thread(
            target=_stop_without_engine,
            args=(studio, server, failed),
            name="engine-watch",
            daemon=True,
        ).start()
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        studio.close()
    for error in failed:
        print(f"{error.en}\n{error.zh}", file=sys.stderr)
    return 2 if failed else 0


def connection(head_s: float) -> type:
    """uvicorn's class for a connection, which waits for the head of a request for ever.

    Here the head must be whole after `head_s`.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Connection(AutoHTTPProtocol):
        _timer = None

        def connection_made(self, transport) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(head_s, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self._timer is None and self.transport.get_protocol() is self:  # a further head
                self._timer = self.loop.call_later(head_s, self.transport.abort)

        def handle_websocket_upgrade(self, *event) -> None:
            super().handle_websocket_upgrade(*event)
            self._stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Connection


def _stop_without_engine(studio, server, failed: list[KaikouError]) -> None:
    """Asked for one engine by name, the studio does not go on without it."""
    studio.starting.join()
    error = studio.engine_manager.failure()
    if error is not None:
        failed.append(error)
        server.should_exit = True


def share(settings: Settings) -> None:
    """Gradio's own tunnel to our port; it ends with this process."""
    import secrets

    from gradio import networking

    try:
        link = networking.setup_tunnel(
            settings.server.host, settings.server.port, secrets.token_urlsafe(32), None, None
        )
    except Exception as error:  # the tunnel is another party's program and fails in many ways
        print(*message("link_failed", error=error), sep="\n", file=sys.stderr)
        return
    print(f"Public link / 公网链接: {link}", flush=True)


def run_command() -> None:
    """The command `kaikou` of an installed package."""
    sys.exit(main())


if __name__ == "__main__":
    run_command()
