"""One process of an engine, seen from the studio: made, asked, listened to, ended.

Knows frames and calls; blind to why it is restarted.

Three rules keep a caller from hanging: nobody writes to the socket but one thread, nobody reads but
one, and whoever waits for an answer is woken when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from queue import SimpleQueue

from ...errors import EngineFault, KaikouError, TooLarge, error_from_dict
from ...files import ROOT
from ...frames import MAX_BODY, Closed, Damaged, Oversized, pack, put, receive
from ...types import Prompt
from .protocol import key_of, words_of_prompt

MAX_VOICES_BYTES = 256 << 20  # prompts the child keeps, so that they need not be sent again
Answer = tuple[dict, bytes]


def engine_lost() -> EngineFault:
    return EngineFault("engine_lost.ended")


def unreadable(detail: str) -> EngineFault:
    return EngineFault("bad_frame", what=detail)


class Call:
    """One question on its way."""

    def __init__(self, life: ChildProcess, number: int):
        self._life, self.number = life, number
        self.slot: SimpleQueue[Answer | None] = SimpleQueue()

    def wait(self) -> Answer:
        """Raises the named error that came instead of an answer, or why the process ended."""
        reply = self.slot.get()
        if reply is None:
            raise self._life.error()
        if "error" in reply[0]:
            raise error_from_dict(reply[0]["error"])
        return reply


class ChildProcess:
    """Must be made in a thread that outlives it: Linux ends the process together with the thread
    that made it.

    on_message(words): what the process says unasked, called in the reading thread. `beats` counts
    its signs of life. `text_callbacks`: of streams whose text is still arriving, by number; called
    when the engine wants more of it.
    """

    def __init__(
        self,
        program: str,
        beat_s: float,
        on_message: Callable[[dict], None],
        max_voices_bytes: int = MAX_VOICES_BYTES,
    ):
        parent_end, child_end = socket.socketpair()
        with child_end:
            command = [sys.executable, "-m", program, str(child_end.fileno()), str(beat_s)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                pass_fds=(child_end.fileno(),),
                process_group=0,
            )
        self._sock, self._on_message = parent_end, on_message
        self._outbox: SimpleQueue[list[memoryview] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count(1)
        self._voices: OrderedDict[str, int] = OrderedDict()  # key -> bytes, as the child keeps them
        self._max_voices_bytes = max_voices_bytes
        self._why: Callable[[], KaikouError] | None = None
        self._is_leaving = False
        self.text_callbacks: dict[int, Callable[[bool], object]] = {}
        self.over = threading.Event()
        self.beats = 0
        self._threads = [
            threading.Thread(target=work, name=f"engine-{name}", daemon=True)
            for name, work in (("reader", self._read), ("writer", self._write))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    # ---- asking ----------------------------------------------------------------------------------
    def ask(self, words: dict, body=b"", prompt: Prompt | None = None) -> Answer:
        return self.call(words, body, prompt).wait()

    def call(self, words: dict, body=b"", prompt: Prompt | None = None) -> Call:
        """prompt: one the process must know first; it is sent when it is not there, in order before
        the question. Raises why the process ended, TooLarge.
        """
        call = Call(self, next(self._numbers))
        try:
            parts = pack(
                {**words, "call": call.number, **({"voice": key_of(prompt)} if prompt else {})},
                body,
            )
        except Oversized as error:
            raise TooLarge("too_large_frame", mb=MAX_BODY >> 20) from error
        voice = (
            pack(
                {"op": "voice", "key": key_of(prompt), "prompt": words_of_prompt(prompt)},
                prompt.data,
            )
            if prompt and key_of(prompt) not in self._voices
            else None
        )
        with self._lock:
            if self._why is not None:
                raise self._why()
            self._calls[call.number] = call
            if prompt:
                self._know(prompt, voice)
            self._outbox.put(parts)
        return call

    def _know(self, prompt: Prompt, voice: list[memoryview] | None) -> None:
        """What is sent here is what the child keeps: it forgets only when told, so both always
        agree.
        """
        key = key_of(prompt)
        if key not in self._voices:
            self._outbox.put(
                voice
                or pack({"op": "voice", "key": key, "prompt": words_of_prompt(prompt)}, prompt.data)
            )
            self._voices[key] = len(prompt.data)
        self._voices.move_to_end(key)
        while len(self._voices) > 1 and sum(self._voices.values()) > self._max_voices_bytes:
            self._outbox.put(pack({"op": "forget", "key": self._voices.popitem(last=False)[0]}))

    def forget(self, fingerprint: str) -> None:
        """Prompts of that fingerprint go, and what the engine has made of them.

        Never waits and never fails.
        """
        with self._lock:
            for key in [key for key in self._voices if key.endswith(f"/{fingerprint}")]:
                del self._voices[key]
                self._outbox.put(pack({"op": "forget", "key": key}))
            self._outbox.put(pack({"op": "erase", "fingerprint": fingerprint}))

    def post(self, words: dict) -> None:
        """Say something that has no answer. Never waits and never fails: safe in a finalizer."""
        self._outbox.put(pack(words))

    def error(self) -> KaikouError:
        """Why it ended: a new object for everyone who is told."""
        return (self._why or engine_lost)()

    # ---- the two threads -------------------------------------------------------------------------
    def _write(self) -> None:
        try:
            while (parts := self._outbox.get()) is not None:
                put(self._sock.sendall, parts)
        except Closed:
            return  # the reader finds out too, and says why

    def _read(self) -> None:
        try:
            with self._sock.makefile("rb") as source:
                while True:
                    words, body = receive(source.read)
                    if "re" in words:
                        self._on_reply(words, body)
                    elif words["op"] == "want":
                        self.text_callbacks.get(words["stream"], bool)(True)
                    else:
                        self.beats += words["op"] == "beat"
                        self._on_message(words)
        except Damaged as fault:
            self._nonsense(str(fault))
        except Closed:
            self.end(engine_lost)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._nonsense(f"words without sense: {type(error).__name__}")

    def _on_reply(self, words: dict, body: bytes) -> None:
        with self._lock:
            call = self._calls.pop(words["re"], None)
        if call is not None:
            call.slot.put((words, body))

    def _nonsense(self, detail: str) -> None:
        self.end(lambda: unreadable(detail))

    # ---- the end ---------------------------------------------------------------------------------
    def end(self, why: Callable[[], KaikouError]) -> None:
        """Nobody waits any longer: all are told `why()`.

        The first reason stays. The process itself is ended by `kill`.
        """
        with self._lock:
            if self._why is not None:
                return
            self._why = why
            waiting, self._calls = list(self._calls.values()), {}
        for call in waiting:
            call.slot.put(None)
        self.over.set()

    def leave(self, why: Callable[[], KaikouError]) -> None:
        """Ask it to close its engine and go; `kill` then waits for it."""
        self._is_leaving = True
        self.post({"op": "bye"})
        self.end(why)

    def kill(self, grace_s: float = 0.0) -> int:
        """End it, if it is leaving after `grace_s` at the latest, and everything it has started;
        returns its exit code (negative: the signal).
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s if self._is_leaving else 0.0)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (
            ProcessLookupError,
            PermissionError,
        ):  # nobody is left; macOS says the latter of a group of zombies
            self._process.kill()
        code = self._process.wait()
        self.end(engine_lost)
        self._outbox.put(None)
        with contextlib.suppress(OSError):  # closed from the other side already
            self._sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._sock.close()
        return code

    def has_ended(self) -> bool:
        """The process is gone, though somebody may still hold its socket open."""
        return self._process.poll() is not None
