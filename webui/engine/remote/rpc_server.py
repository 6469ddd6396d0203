"""The child's side of the wire: takes questions, has the engine answer them, tells that it lives.

Knows any Engine, no torch.

A thread per lane steps streams, so lanes are as many as the engine says; slow work and quick
questions have threads of their own; the main thread only reads, and one thread only beats.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from ...errors import Cancelled, KaikouError, NotReady, error_from_dict
from ...frames import Closed, Damaged, receive, send
from ...types import Health, Prompt, SpeechRequest
from ..base import Engine
from .gpu_faults import as_engine_error, is_sticky
from .protocol import (
    prompt_of,
    record_of,
    words_of,
    words_of_chunk,
    words_of_prompt,
)
from .server_stream import Stream
from .watchdog import Watchdog

log = logging.getLogger(__name__)
Work = Callable[[], tuple[dict, bytes | memoryview]]


class RpcServer:
    def __init__(
        self, sock: socket.socket, kinds: Mapping[str, Callable[..., Engine]], beat_s: float
    ):
        self._sock, self._kinds, self._beat_s = sock, kinds, beat_s
        self._engine: Engine | None = None
        self._sending = threading.Lock()
        self._voices: dict[str, Prompt] = {}
        self._streams: dict[int, Stream] = {}
        self._lanes: dict[int, ThreadPoolExecutor] = {}
        self._slow = ThreadPoolExecutor(2, thread_name_prefix="slow")
        self._stir = Watchdog()
        self._quick = ThreadPoolExecutor(
            2, thread_name_prefix="quick", initializer=self._stir.leave_out
        )

    def serve(self) -> int:
        """Until the studio says goodbye or is gone; the exit code."""
        self._stir.leave_out()
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        source = self._sock.makefile("rb")
        while True:
            try:
                words, body = receive(source.read)
                if words["op"] == "bye":
                    return self._leave()
                self._take(words, body)
            except (Damaged, KeyError, TypeError, ValueError) as fault:
                log.error("what the studio sent has no sense", exc_info=fault)
                return 1
            except Closed:
                return 0

    def _leave(self) -> int:
        if self._engine is not None:
            self._engine.close()
        return 0

    # ---- telling ---------------------------------------------------------------------------------
    def _send(self, words: dict, body=b"") -> None:
        with self._sending:
            try:
                send(self._sock.sendall, words, body)
            except Closed:
                return  # the main thread sees it too, and ends the process

    def _beat(self) -> None:
        """Asks the engine for its health each time: an engine that cannot answer even that makes us
        fall silent, and is noticed.
        """
        self._stir.leave_out()
        pause = threading.Event()
        while True:
            health = self._engine.health() if self._engine is not None else Health("starting")
            figures = self._engine.figures() if hasattr(self._engine, "figures") else {}
            beat = {"op": "beat", "still": self._stir.look(), "health": words_of(health)}
            self._send(beat | {"figures": figures})
            pause.wait(self._beat_s)

    def _answer(self, call: int, work: Work) -> None:
        """Whatever happens in `work` has an answer."""
        try:
            words, body = work()
            self._send({"re": call, **words}, body)
        except Exception as error:
            if not isinstance(
                error, KaikouError
            ):  # an engine's own bug fails its request, not the process
                log.exception("a request failed in the engine")
            details = error if isinstance(error, KaikouError) else as_engine_error(error)
            self._send({"re": call, "error": details.to_dict()})
            if is_sticky(error):
                self._send({"op": "ill", "error": as_engine_error(error).to_dict()})

    def _work(self, call: int, work: Work, stream: int = 0) -> None:
        with self._stir.working(stream):
            self._answer(call, work)

    # ---- taking ----------------------------------------------------------------------------------
    def _take(self, words: dict, body: bytes) -> None:
        op, call = words["op"], words.get("call", 0)
        if op == "next":
            stream = self._streams.get(words["stream"])
            if stream is None and "open" not in words:  # closed by another thread of its reader
                return self._send({"re": call, "error": Cancelled().to_dict()})
            stream = stream or self._open(words, body)
            stream.lane.submit(self._work, call, partial(self._next, stream), stream.number)
        elif op == "cancel":
            self._cancel(words["request"])
        elif op == "close":
            self._close(words["stream"])
        elif op == "piece":
            stream = self._streams.get(words["stream"])
            if stream is not None:
                error = words.get("error")
                stream.pieces.put(error_from_dict(error) if error else words["text"])
        elif op == "voice":
            self._voices[words["key"]] = prompt_of(words["prompt"], body)
        elif op == "forget":
            self._voices.pop(words["key"], None)
        elif op == "erase":
            self._erase(words["fingerprint"])
        elif op == "start":
            threading.Thread(
                target=self._start,
                args=(words["kind"], words["arguments"]),
                name="start",
                daemon=True,
            ).start()
        elif op == "encode":
            self._slow.submit(self._work, call, lambda: self._encode(words, body))
        elif op == "prepare":
            prompt = self._voices[words["voice"]]
            self._slow.submit(self._work, call, lambda: (self._engine.prepare(prompt) or {}, b""))
        elif op == "preset":
            self._quick.submit(
                self._answer, call, lambda: _prompt_reply(self._engine.preset(words["name"]))
            )
        elif op == "check":
            request, prompt = (
                record_of(SpeechRequest, words["request"]),
                self._voices[words["voice"]],
            )
            self._quick.submit(
                self._answer, call, lambda: ({"notes": self._engine.check(request, prompt)}, b"")
            )
        elif op == "notes":
            self._quick.submit(
                self._answer,
                call,
                lambda: (
                    {"notes": self._engine.notes(record_of(SpeechRequest, words["request"]))},
                    b"",
                ),
            )
        else:
            raise ValueError(op)

    def _start(self, kind: str, arguments: dict) -> None:
        try:
            if kind not in self._kinds:
                raise NotReady("no_engine", kind=kind[:40])
            with self._stir.working():
                self._engine = self._kinds[kind](**arguments)
                self._engine.start()
            about = self._engine.describe()
            self._send({"op": "ready", "about": words_of(about)})
        except KaikouError as error:
            self._send({"op": "failed", "error": error.to_dict()})
        except Exception as error:  # an engine's own bug must not leave the page waiting for ever
            log.exception("the engine failed to start")
            broken = NotReady("broken.start", error=error)
            self._send({"op": "failed", "error": broken.to_dict()})

    def _encode(self, words: dict, body: bytes) -> tuple[dict, bytes]:
        samples = np.frombuffer(bytearray(body), np.float32)  # torch wants what can be written to
        return _prompt_reply(
            self._engine.encode(samples, words["rate"], words["transcript"], words["language"])
        )

    def _erase(self, fingerprint: str) -> None:
        """Behind every step that was asked for before: one that is just beginning would bring the
        voice back.
        """
        if not hasattr(self._engine, "forget"):
            return
        self._quick.submit(self._engine.forget, fingerprint)
        for lane in {*self._lanes.values(), *(stream.lane for stream in self._streams.values())}:
            lane.submit(self._engine.forget, fingerprint)

    # ---- streams ---------------------------------------------------------------------------------
    def _open(self, words: dict, body: bytes) -> Stream:
        """The engine itself is asked in the stream's lane, at its first step."""
        how, prompt = words["open"], self._voices[words["voice"]]
        request = record_of(SpeechRequest, how["request"])
        if (
            how["how"] == "text"
        ):  # may wait for its writer: in a thread of its own, or it would hold a lane up
            stream = Stream(words["stream"], request.id, ThreadPoolExecutor(1, "text"))
            pieces = stream.arriving(
                self._stir, lambda number: self._send({"op": "want", "stream": number})
            )
            stream.begin = partial(self._engine.stream_text, request, prompt, pieces)
        else:
            stream = Stream(words["stream"], request.id, self._lane(how["lane"]))
            if how["how"] == "convert":
                samples = np.frombuffer(bytearray(body), np.float32)
                stream.begin = partial(
                    self._engine.convert, request, prompt, samples, how["rate"], how["lane"]
                )
            else:
                stream.begin = partial(self._engine.stream, request, prompt, how["lane"])
        self._streams[stream.number] = stream
        return stream

    def _lane(self, number: int) -> ThreadPoolExecutor:
        if number not in self._lanes:
            self._lanes[number] = ThreadPoolExecutor(1, f"lane-{number}")
        return self._lanes[number]

    def _next(self, stream: Stream) -> tuple[dict, bytes | memoryview]:
        chunk = stream.step()
        if chunk is None:
            return {"end": True}, b""
        words, samples = words_of_chunk(chunk)
        return {"chunk": words}, samples

    def _cancel(self, request_id: str) -> None:
        for stream in self._streams.values():
            if stream.request_id == request_id:
                self._stir.must_end(stream.number)
        if self._engine is not None:
            self._engine.cancel(request_id)

    def _close(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            self._stir.must_end(number)
            stream.pieces.put(None)
            stream.lane.submit(stream.close)
            if stream.lane not in self._lanes.values():  # its own: its text was arriving
                stream.lane.shutdown(wait=False)


def _prompt_reply(prompt: Prompt) -> tuple[dict, bytes]:
    return {"prompt": words_of_prompt(prompt)}, prompt.data
