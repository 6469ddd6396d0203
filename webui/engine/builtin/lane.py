"""One worker process seen from the engine: asks, waits with a limit, restarts it when it died or fell silent. Thread-safe."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from ... import errors
from .wire import Closed, receive, send

ROOT = Path(__file__).resolve().parents[3]
START_S = 60.0
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def _taken(queue: deque) -> list:
    """All that is in it now; any thread may add meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]


def _named(error: dict) -> errors.KaikouError:
    kind = getattr(errors, error["kind"], errors.EngineFault)
    if "en" not in error:
        return kind()
    return kind(error["en"], error["zh"], code=error.get("code"), param=error.get("param"))


class Lane:
    """`life` counts the processes this lane has had: a stream of an earlier life is lost."""

    def __init__(self, *flags: str, stall_s: float = 10.0):
        self._flags, self._stall_s = flags, stall_s
        self._lock = threading.Lock()
        self._drops: deque[tuple[int, int]] = (
            deque()
        )  # streams that nobody reads any more, and the life they began in
        self._forgets: deque[str] = deque()  # voices that nobody needs any more
        self._news: SimpleQueue[bool] = SimpleQueue()  # of either; False: there will be no more
        self._sweeper = threading.Thread(target=self._sweep, name="builtin-sweep", daemon=True)
        self._sweeper.start()
        self._process: subprocess.Popen | None = None
        self._sock: socket.socket | None = None
        self._bell: socket.socket | None = None
        self._closed = False
        self.life = 0
        self.trouble: errors.KaikouError | None = (
            None  # why it could not be started again; None when it runs
        )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Raises NotReady when the worker cannot work here."""
        with self._lock:
            self._spawn()

    def _spawn(self) -> None:
        if self._closed:
            raise errors.NotReady("The studio is closing.", "工作室正在关闭。", code="closing")
        (ours, theirs), (bell, heard) = socket.socketpair(), socket.socketpair()
        command = [
            sys.executable,
            "-m",
            "webui.engine.builtin.worker",
            f"--bell={heard.fileno()}",
            *self._flags,
        ]
        with theirs, heard:
            self._process = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD},
                pass_fds=(heard.fileno(),),
            )
        bell.setblocking(False)
        self._sock, self._bell = ours, bell
        self.life += 1
        self._drops.clear()
        self._forgets.clear()
        ours.settimeout(START_S)
        try:
            header, _ = receive(ours)
        except (Closed, TimeoutError) as e:
            self._kill()
            raise errors.NotReady(
                "The built-in voice could not start. See the log.",
                "内置声音没能启动，请查看日志。",
                code="no_worker",
            ) from e
        if "error" in header:
            self._kill()
            raise _named(header["error"])
        self.trouble = None
        ours.settimeout(self._stall_s)

    def _kill(self) -> None:
        for link in (self._sock, self._bell):
            if link:
                link.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._sock = self._bell = self._process = None

    def ring(self) -> None:
        """What is being made ends with the block it is at, and is answered. Never waits."""
        bell = self._bell
        if bell is not None:
            with suppress(OSError):  # it is gone, or nobody has listened for a while
                bell.send(b"!")

    def ask(
        self,
        question: dict,
        body: bytes = b"",
        life: int | None = None,
        limit_s: float | None = None,
    ) -> tuple[dict, bytearray]:
        """One question, one answer, within `limit_s` if that is not the usual time. Raises the worker's named error; EngineFault when it
        died or the stream's life is over, EngineStalled when it fell silent. After either it has been started again."""
        with self._lock:
            if life is not None and life != self.life:
                raise errors.EngineFault()
            if self._process is None:
                self._spawn()
            try:
                if limit_s is not None:
                    self._sock.settimeout(limit_s)
                header, answer = self._exchange(question, body)
                if limit_s is not None:
                    self._sock.settimeout(self._stall_s)
            except Closed as e:
                self._again()
                raise errors.EngineFault() from e
            except TimeoutError as e:
                self._again()
                raise errors.EngineStalled() from e
        if "error" in header:
            raise _named(header["error"])
        return header, answer

    def _again(self) -> None:
        self._kill()
        try:
            self._spawn()
        except errors.KaikouError as e:
            self.trouble = e.copy()  # the next question tries again

    def _exchange(self, question: dict, body: bytes) -> tuple[dict, bytearray]:
        drops = [number for number, life in _taken(self._drops) if life == self.life]
        forgets = _taken(self._forgets)
        send(
            self._sock,
            question
            | ({"drop": drops} if drops else {})
            | ({"forget": forgets} if forgets else {}),
            body,
        )
        return receive(self._sock)

    def drop(self, number: int, life: int) -> None:
        """Forget a stream, as soon as the worker is free. Never waits and takes no lock: safe in a finalizer, in any thread."""
        self._drops.append((number, life))
        self._news.put(True)

    def forget(self, fingerprint: str) -> None:
        """What the worker keeps of a voice goes, as soon as it is free. Streams of it go on. Never waits."""
        self._forgets.append(fingerprint)
        self._news.put(True)

    def _sweep(self) -> None:
        """What no question has taken along yet is told in this thread: a worker that hangs may hold it up for `stall_s`, and nobody else."""
        while self._news.get():
            with self._lock:
                if self._process is None or not (self._drops or self._forgets):
                    continue
                try:
                    self._exchange({"op": "drop"}, b"")
                except (Closed, TimeoutError):
                    self._kill()

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._kill()
        self._news.put(False)
        self._sweeper.join()
