"""One sound worker process: start it, put one request to it, end it.

Knows frames and deadlines, not what they carry.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

REQUEST = struct.Struct("<4sQ16s4d")  # as worker/protocol.py
ANSWER = struct.Struct("<4sB3IQ")
WORKER = Path(__file__).parent / "worker"


class WorkerLost(Exception):
    """The worker ended without an answer.

    `late` says that it was ended here, for taking too long.
    """

    def __init__(self, late: bool):
        super().__init__("late" if late else "gone")
        self.late = late


class WorkerProcess:
    """task: "read" or "clean". One request at a time; the caller sees to that."""

    def __init__(self, task: str, *, memory_bytes: int, cpu_s: int, idle_s: float = 0.0):
        command = [
            sys.executable,
            "-B",
            str(WORKER),
            task,
            str(memory_bytes),
            str(idle_s),
            str(cpu_s),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(
        self, kind: str, numbers: tuple[float, ...], payload: bytes, *, within_s: float
    ) -> tuple[int, int, int, int, bytes]:
        """(state, rate, source rate, channels, payload).

        Raises Lost when the worker dies or `within_s` passes.
        """
        late = threading.Event()

        def give_up():
            late.set()
            self._process.kill()

        clock = threading.Timer(within_s, give_up)
        clock.daemon = True
        clock.start()
        try:
            padded = (*numbers, *([0.0] * (4 - len(numbers))))
            self._process.stdin.write(
                REQUEST.pack(b"KKq1", len(payload), kind.encode("ascii"), *padded)
            )
            self._process.stdin.write(payload)
            self._process.stdin.flush()
            head = self._process.stdout.read(ANSWER.size)
            if len(head) < ANSWER.size:
                raise WorkerLost(late.is_set() or self._out_of_cpu())
            magic, state, rate, source_hz, channels, size = ANSWER.unpack(head)
            body = self._process.stdout.read(size)
            if magic != b"KKa1" or len(body) < size:
                raise WorkerLost(late.is_set())
        except (BrokenPipeError, ValueError) as e:
            raise WorkerLost(late.is_set()) from e
        finally:
            clock.cancel()
            clock.join()
        return state, rate, source_hz, channels, body

    def _out_of_cpu(self) -> bool:
        return self._process.wait() == -getattr(signal, "SIGXCPU", 24)

    def end(self) -> None:
        """Close the pipes; the worker ends by itself, or is ended after a second.

        Safe to call twice.
        """
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:  # unsent bytes for a worker that is gone
                continue
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked copy of the studio: let go of the pipes, or the worker would outlive the
        studio.
        """
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.raw.close() if hasattr(pipe, "raw") else pipe.close()
        self._process.returncode = 0
