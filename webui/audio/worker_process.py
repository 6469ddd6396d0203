"""One sound worker process: start it, put one request to it, end it.

Knows frames and deadlines, not what they carry.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

from ..frames import Closed, Damaged, receive, send

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
        self._memory_bytes = memory_bytes
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
            request = {"kind": kind, "numbers": list(map(float, numbers))}
            send(self._process.stdin.write, request, payload, self._memory_bytes)
            self._process.stdin.flush()
            header, body = receive(self._process.stdout.read, self._memory_bytes)
            state, rate, source_hz, channels = map(_count, header["answer"])
        except (Damaged, BrokenPipeError, KeyError, TypeError, ValueError) as e:
            raise WorkerLost(late.is_set()) from e
        except Closed as e:
            raise WorkerLost(late.is_set() or self._out_of_cpu()) from e
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


def _count(number: object) -> int:
    """A stranger's file may speak through the worker: only counts are taken from it."""
    if type(number) is not int or not 0 <= number < 1 << 32:
        raise ValueError("no count")
    return number
