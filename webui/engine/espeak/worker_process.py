"""Worker processes seen from the engine: asks, waits with a limit, restarts one when it died or
fell silent. Thread-safe.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from io import BufferedReader
from queue import SimpleQueue

from ... import errors
from ...files import ROOT
from ...frames import RING, Closed, receive, send

START_S = 60.0
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def _drain(queue: deque) -> list:
    """All that is in it now; any thread may add meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]


class WorkerProcess:
    """A program with one lane or several, each with sockets of its own.

    `life` counts the processes that there have been.
    """

    def __init__(self, program: str, *flags: str, n_lanes: int = 1):
        self._program, self._flags, self._n_lanes = program, flags, n_lanes
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._ends: dict[int, tuple[socket.socket, socket.socket]] = {}  # that no lane has taken
        self.life = 0

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process else None

    def connect(self, lane: int, life: int) -> tuple[socket.socket, socket.socket, int]:
        """(for questions, bell, life) of a lane whose last process was that of `life`: a new one
        where there is none after it. The sockets are the lane's own from now on: closed by another
        thread, their numbers would soon be those of others, and read by who waits.
        """
        with self._lock:
            if life == self.life or lane not in self._ends:  # or another lane has just ended it
                self._start()
            return *self._ends.pop(lane), self.life

    def _start(self) -> None:
        self._end()
        pairs = [(socket.socketpair(), socket.socketpair()) for _ in range(self._n_lanes)]
        child_ends = [(lane_end, bell_end) for (_, lane_end), (_, bell_end) in pairs]
        fds = [end.fileno() for ends in child_ends for end in ends]
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    self._program,
                    *(
                        f"--lane={lane_end.fileno()},{bell_end.fileno()}"
                        for lane_end, bell_end in child_ends
                    ),
                    *self._flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD},
                pass_fds=fds,
            )
        finally:
            for ends in child_ends:
                for end in ends:
                    end.close()
        self._ends = {n: (lane, bell) for n, ((lane, _), (bell, _)) in enumerate(pairs)}
        for _, bell in self._ends.values():
            bell.setblocking(False)
        self.life += 1

    def end(self, life: int) -> None:
        """Whatever it does, that process is over; a later one goes on."""
        with self._lock:
            if life == self.life:
                self._end()

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
        for end in itertools.chain(*self._ends.values()):
            end.close()
        self._ends, self._process = {}, None


class WorkerConnection:
    """`life` counts the processes this lane has had: a stream of an earlier life is lost. process:
    shared with other lanes, this one being number `lane` on it; else the lane has one of its own,
    with `flags`.
    """

    def __init__(
        self,
        *flags: str,
        stall_s: float = 10.0,
        process: WorkerProcess | None = None,
        lane: int = 0,
    ):
        self._home, self._number, self._stall_s = (
            process or WorkerProcess("webui.engine.espeak.worker", *flags),
            lane,
            stall_s,
        )
        self._lock = threading.Lock()
        self._drops: deque[tuple[int, int]] = (
            deque()
        )  # streams that nobody reads any more, and the life they began in
        self._forgets: deque[str] = deque()  # voices that nobody needs any more
        self._news: SimpleQueue[bool] = SimpleQueue()  # of either; False: there will be no more
        self._sweeper = threading.Thread(target=self._sweep, name="builtin-sweep", daemon=True)
        self._sweeper.start()
        self._sock: socket.socket | None = None
        self._source: BufferedReader | None = None  # of what comes from the socket
        self._bell: socket.socket | None = None
        self._closed = False
        self.life = 0
        # why it could not be started again; None when it runs
        self.trouble: errors.KaikouError | None = None

    @property
    def pid(self) -> int | None:
        return self._home.pid

    def start(self) -> None:
        """Raises NotReady when the worker cannot work here."""
        with self._lock:
            self._spawn()

    def _spawn(self) -> None:
        if self._closed:
            raise errors.NotReady("closing")
        self._hang_up()
        self._sock, self._bell, self.life = self._home.connect(self._number, self.life)
        self._source = self._sock.makefile("rb")
        self._drops.clear()
        self._forgets.clear()
        try:
            self._sock.settimeout(START_S)
            header, _ = receive(self._source.read)
        except (Closed, OSError) as e:  # OSError: another lane has ended the process meanwhile
            self._kill()
            raise errors.NotReady("no_worker") from e
        if "error" in header:
            self._kill()
            raise errors.error_from_dict(header["error"])
        self.trouble = None
        self._sock.settimeout(self._stall_s)

    def _kill(self) -> None:
        self._home.end(self.life)
        self._hang_up()

    def _hang_up(self) -> None:
        for end in (self._source, self._sock, self._bell):
            if end is not None:
                end.close()
        self._sock = self._source = self._bell = None

    def ring(self, stream: int = 0) -> None:
        """What is being made ends with the block it is at, and is answered; or that stream ends at
        once, where the program can do it. Never waits.
        """
        bell = self._bell
        if bell is not None:
            with suppress(OSError):  # it is gone, or nobody has listened for a while
                bell.send(RING.pack(stream))

    def ask(
        self,
        question: dict,
        body: bytes = b"",
        life: int | None = None,
        limit_s: float | None = None,
    ) -> tuple[dict, bytes]:
        """One question, one answer, within `limit_s` if that is not the usual time.

        Raises the worker's named error; EngineFault when it died or the stream's life is over,
        EngineStalled when it fell silent. After either it has been started again. A question that
        belongs to no life is asked a second time: the worker may have died while nobody asked
        anything.
        """
        with self._lock:
            if self._sock is None or self._home.life != self.life:  # another lane restarted it
                self._spawn()
            if life is not None and life != self.life:
                raise errors.EngineFault()
            try:
                if limit_s is not None:
                    self._sock.settimeout(limit_s)
                header, answer = self._exchange(question, body)
                if limit_s is not None:
                    self._sock.settimeout(self._stall_s)
            except Closed as e:
                self._again()
                if life is not None or self.trouble:
                    raise errors.EngineFault() from e
                header, life = None, self.life
            except TimeoutError as e:
                self._again()
                raise errors.EngineStalled() from e
        if header is None:
            return self.ask(question, body, life, limit_s)
        if "error" in header:
            raise errors.error_from_dict(header["error"])
        return header, answer

    def _again(self) -> None:
        self._kill()
        try:
            self._spawn()
        except errors.KaikouError as e:
            self.trouble = e.copy()  # the next question tries again

    def _exchange(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        drops = [number for number, life in _drain(self._drops) if life == self.life]
        forgets = _drain(self._forgets)
        send(
            self._sock.sendall,
            question
            | ({"drop": drops} if drops else {})
            | ({"forget": forgets} if forgets else {}),
            body,
        )
        return receive(self._source.read)

    def drop(self, number: int, life: int) -> None:
        """Forget a stream, as soon as the worker is free.

        Never waits and takes no lock: safe in a finalizer, in any thread.
        """
        self._drops.append((number, life))
        self._news.put(True)

    def forget(self, fingerprint: str) -> None:
        """What the worker keeps of a voice goes, as soon as it is free.

        Streams of it go on. Never waits.
        """
        self._forgets.append(fingerprint)
        self._news.put(True)

    def _sweep(self) -> None:
        """What no question has taken along yet is told in this thread: a worker that hangs may hold
        it up for `stall_s`, and nobody else.
        """
        while self._news.get():
            with self._lock:
                if self._sock is None or not (self._drops or self._forgets):
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
