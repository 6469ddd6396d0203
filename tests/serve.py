"""The real studio in a process of its own, on a free port, for tests that need real sockets and a
real browser.

    with running() as studio:            # the tone engine; studio.url, studio.owner_client()
    with running(engine="builtin"):      # the built-in voice

As a program: python -m tests.serve [--natural fast|slow|loading] [--fake --fake-start SECONDS
--fake-lanes N --fake-gate PIPE] <flags of run.sh>. /test/state tells what the fake engine did.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.nest import Hatched, alone
from webui.errors import KaikouError

lay = alone  # how a server comes into being; tests/conftest.py has them forked
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Running:
    url: str
    process: Hatched | subprocess.Popen
    data_dir: Path
    log: Path

    def state(self) -> dict:
        return httpx.get(self.url + "/test/state", timeout=60).json()

    def client(self, **kw) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **kw)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def running(
    *flags: str,
    engine: str = "fake",
    fake_start_s: float = 0.0,
    fake_lanes: int = 2,
    fake_gate: Path | str = "",
    wait: bool = True,
    env: dict | None = None,
    data_dir: Path | None = None,
    max_file_kb: int = 0,
    port: int = 0,
    natural: str = "",
    hosted_gate: Path | str = "",
):
    """`env`: further KAIKOU_* settings, e.g. {"KAIKOU_MAX_STREAMS": "2"}.

    `max_file_kb`: the kernel refuses larger files, as a full disk does.

    `natural`: "fast": the built-in engine's natural voice is there, and the default whatever this
      machine's speed is. "slow", "loading": it says
    that it is, and loads nothing. `hosted_gate`: a tone engine in a process of its own takes over,
    and comes back once when that dies; each of its starts waits until somebody writes to this named
    pipe.
    """
    with tempfile.TemporaryDirectory(prefix="kaikou-test-") as temp_dir:
        data = data_dir or Path(temp_dir) / "data"
        port, log = port or free_port(), Path(temp_dir) / "log.txt"
        argv = [
            *(
                [
                    "--fake",
                    "--fake-start",
                    str(fake_start_s),
                    "--fake-lanes",
                    str(fake_lanes),
                    "--fake-gate",
                    str(fake_gate),
                ]
                if engine == "fake"
                else ["--engine", engine]
            ),
            "--port",
            str(port),
            "--data-dir",
            str(data),
            *(["--natural", natural] if natural else []),
            *(["--hosted", str(hosted_gate)] if hosted_gate else []),
            *flags,
        ]
        # the natural voice takes seconds of work to load: tests that are about it ask for it
        # an examination is a process of minutes: tests that are about it ask for it
        usual = {
            "KAIKOU_EXAMINE": "0",
            "KAIKOU_UPLOADS_PER_MINUTE": "100000",
            "KAIKOU_NATURAL": str(int(bool(natural))),
        }
        process = lay(argv, log, {**os.environ, **usual, **(env or {})}, max_file_kb)
        try:
            wait_for_line(process, log)
            studio = Running(f"http://127.0.0.1:{port}", process, data, log)
            if wait:
                wait_ready(studio, _known_to(studio, flags, env or {}))
            if natural == "fast":
                wait_natural(studio)
            yield studio
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
            process.stdout.close()


def wait_for_line(process, log: Path, limit_s: float = 90) -> None:
    """The address is printed when the page can be opened."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        has_line = select.select([process.stdout], [], [], 1.0)[0]
        if has_line and b"http://" in process.stdout.readline():
            return
        if process.poll() is not None:
            break
    raise RuntimeError(f"the studio did not start:\n{log.read_text('utf-8', 'replace')[-3000:]}")


def _known_to(studio: Running, flags: tuple[str, ...], env: dict[str, str]) -> httpx.Client:
    """One that the studio lets in: to a stranger a locked one says the same whether it is ready or
    not.
    """
    client = httpx.Client(base_url=studio.url, timeout=30)
    if key := env.get("KAIKOU_API_KEY"):
        client.headers["Authorization"] = f"Bearer {key.split(',')[0]}"
    elif "--auth" in flags:
        user, _, password = flags[flags.index("--auth") + 1].partition(":")
        client.post("/login", data={"user": user, "password": password})
    return client


def wait_ready(studio: Running, client: httpx.Client, limit_s: float = 90) -> None:
    end = time.monotonic() + limit_s
    with contextlib.closing(client):
        while time.monotonic() < end:
            try:
                if client.get("/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise RuntimeError(
        f"the engine did not become ready:\n{studio.log.read_text('utf-8', 'replace')[-3000:]}"
    )


def wait_natural(studio: Running, limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    with studio.client() as client:
        while time.monotonic() < end:
            state = client.get("/tts/health").json()["natural"]
            if state != "starting":
                assert state == "ready", state
                return
            time.sleep(0.1)
    raise RuntimeError("the natural voice did not become ready")


def _set_natural(mode: str) -> None:
    """In this process, before its engine is made."""
    from webui.engine.natural import workers
    from webui.types import Health

    def start_slow(self) -> None:
        self.rtf, self._health = 1.3, Health("ready")

    if mode == "fast":
        workers.SLOWEST_DEFAULT = math.inf
    else:
        workers.NaturalLanes.start = start_slow if mode == "slow" else lambda self: None


def engine_pid(studio) -> int | None:
    """Of the process of the engine in charge, where it has one that lives."""
    try:
        lease = studio.engine_manager.lease()
    except KaikouError:
        return None
    lease.release()
    return getattr(lease.engine, "pid", None)


def _hosted(gate: str):
    """Makes a tone engine in a process of its own; the second failure is its last."""
    from webui.engine.remote import RemoteEngine, Timeouts

    patience = Timeouts(beat_s=0.1, max_restarts=1, back_off_s=(0.0,))
    return lambda: RemoteEngine(
        "wild", {"held_by": gate}, patience, program="tests.engine.hosted_child"
    )


def _main(argv: list[str]) -> int:
    from tests.engine.fake import FakeEngine
    from webui import __main__ as program
    from webui import app as root
    from webui.audio import coders_open
    from webui.settings import load

    fake = None
    if "--natural" in argv:
        at = argv.index("--natural")
        _set_natural(argv[at + 1])
        del argv[at : at + 2]
    if "--fake" in argv:
        argv.remove("--fake")
        at = argv.index("--fake-start")
        fake = FakeEngine(
            start_s=float(argv[at + 1]), lanes=int(argv[at + 3]), held_by=argv[at + 5]
        )
        del argv[at : at + 6]
    makers = [lambda: fake] if fake else []
    if "--hosted" in argv:
        at = argv.index("--hosted")
        makers.append(_hosted(argv[at + 1]))
        del argv[at : at + 2]
    program.log_to_stderr()
    settings = load(argv)
    listener = program.listen(settings)
    app, studio = root.build(settings, *makers)

    sockets: set[int] = set()  # that are open

    async def with_state(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/test/state":
            import threading

            state = {
                "opened": fake.opened if fake else 0,
                "finalised": fake.finalised if fake else 0,
                "thread_names": sorted(t.name for t in threading.enumerate()),
                "fds": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
                "pid": os.getpid(),
                "engine_pid": engine_pid(studio),
                "open": studio.scheduler_pool.n_open,
                "waiting": studio.job_runner.admission.n_waiting,
                "admitted": studio.job_runner.admission.n_open,
                "torch": "torch" in sys.modules,
                "coders": coders_open(),
                "encoded": studio.prompts.n_encoded,
                "notices": sum(c.notice for c in list(studio.takes.choices._choices.values())),
                "sockets": len(sockets),
            }
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"application/json")],
                }
            )
            return await send({"type": "http.response.body", "body": json.dumps(state).encode()})
        if scope["type"] == "websocket":
            sockets.add(id(scope))
        try:
            await app(scope, receive, send)
        finally:
            sockets.discard(id(scope))

    return program.run(settings, listener, with_state, studio, app.state.rpc)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
