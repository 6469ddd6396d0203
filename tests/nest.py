"""A process that has read all the studio's modules and forks a server from there: reading them
takes seconds, and a test run starts a hundred servers.

It has no thread but one, so that a fork is whole. What it forks gets files, environment and limits
of its own, as a new process would.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def alone(argv: list[str], log: Path, env: dict[str, str], max_file_kb: int) -> subprocess.Popen:
    """tests.serve with these arguments as a process of its own: benchmarks measure this one, a fork
    pays for memory it shares.
    """
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.serve", *argv],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=out,
            env=env,
            preexec_fn=lambda: _limit(max_file_kb),
        )


class Hatched:
    """Of subprocess.Popen what tests use."""

    def __init__(self, nest: Nest, pid: int, stdout):
        self._nest, self.pid, self.stdout, self.returncode = nest, pid, stdout, None
        self._fd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nest.ask({"poll": self.pid})
            if self.returncode is not None:
                os.close(self._fd)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("studio", timeout)
            self.poll()
        return self.returncode

    def send_signal(self, which: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._fd, which)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nest:
    """Its process is started by the first that is to be hatched."""

    def __init__(self):
        self._lock = threading.Lock()
        self._near_end: socket.socket | None = None

    def hatch(
        self,
        argv: list[str],
        log: Path,
        env: dict[str, str],
        max_file_kb: int,
        program: str = "tests.serve",
    ) -> Hatched:
        """The same, forked. `program`: another one that starts so often."""
        with log.open("wb") as out:
            near_end, far_end = os.pipe()
            pid = self.ask(
                {"program": program, "argv": argv, "env": env, "max_file_kb": max_file_kb},
                [far_end, out.fileno()],
            )
        os.close(far_end)
        return Hatched(self, pid, os.fdopen(near_end, "rb"))

    def ask(self, request: dict, fds: list[int] | None = None):
        with self._lock:
            if self._near_end is None:
                self._start()
            socket.send_fds(self._near_end, [json.dumps(request).encode()], fds or [])
            return json.loads(self._near_end.recv(1 << 10))

    def _start(self) -> None:
        self._near_end, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.nest", str(far_end.fileno())],
            cwd=ROOT,
            pass_fds=[far_end.fileno()],
            stdin=subprocess.DEVNULL,
        )
        far_end.close()

        def end():
            self._near_end.shutdown(socket.SHUT_RDWR)
            process.wait(10)

        atexit.register(end)


NEST = Nest() if hasattr(os, "pidfd_open") else None  # one for a test run; not on macOS


def _sit(line: socket.socket) -> int:
    import gradio  # noqa: F401
    import uvicorn.protocols.websockets.websockets_impl  # noqa: F401

    import tests.engine.fake  # noqa: F401
    import webui.__main__
    import webui.app  # noqa: F401
    from scripts.batch_chaos import life
    from tests import serve

    programs = {"tests.serve": serve._main, "scripts.batch_chaos.life": life.main}
    gc.freeze()
    assert threading.active_count() == 1, threading.enumerate()
    while True:
        message, fds, _, _ = socket.recv_fds(line, 1 << 20, 2)
        if not message:
            return 0
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            line.sendall(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        pid = os.fork()
        if not pid:
            line.close()
            _fly(programs[request["program"]], request, *fds)
        for fd in fds:
            os.close(fd)
        line.sendall(json.dumps(pid).encode())


def _limit(max_file_kb: int) -> None:
    if max_file_kb:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_kb << 10,) * 2)


def _fly(main, request: dict, stdout: int, stderr: int) -> None:
    """In the forked process; does not come back."""
    code = 1
    try:
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        os.environ.clear()
        os.environ.update(request["env"])
        _limit(request["max_file_kb"])
        code = main(request["argv"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # what a normal end would wait for, also the pools
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    sys.exit(_sit(socket.socket(fileno=int(sys.argv[1]))))
