"""RemoteEngine: an Engine whose work is done by a child process, watched, and restarted when it
dies, freezes or stands still.
"""

from __future__ import annotations

import itertools
import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np

from ...errors import EngineFault, EngineStalled, KaikouError, NotReady, error_from_dict
from ...messages import Message, message
from ...types import Abilities, Chunk, Health, Prompt, SpeechRequest
from .child_process import ChildProcess, engine_lost
from .client_stream import ClientStream
from .protocol import prompt_of, record_of, words_of
from .timeouts import Timeouts

log = logging.getLogger(__name__)
PROGRAM = "webui.engine.remote.child"
USUAL = Timeouts()


def closing() -> NotReady:
    return NotReady("closing")


class RemoteEngine:
    """kind, arguments: which engine the child builds, a name of its table and what JSON can say
    (child.py). program: the module that is the child.
    """

    def __init__(
        self, kind: str, arguments: dict, timeouts: Timeouts = USUAL, program: str = PROGRAM
    ):
        self._recipe, self._timeouts, self._program = (
            {"op": "start", "kind": kind, "arguments": arguments},
            timeouts,
            program,
        )
        self._lock = threading.Lock()
        self._life: ChildProcess | None = None
        self._about: Abilities | None = None
        self._health = Health("starting", *message("health.process_starting"))
        self._refusal: Callable[[], KaikouError] | None = None  # why it is over for good
        self._is_ready = False
        self._restarts: deque[float] = deque()
        self._start_s, self._born_s, self._still = 5.0, 0.0, 0
        self._closing = threading.Event()
        self._first: Future = Future()
        self._numbers = itertools.count(1)
        self._thread = threading.Thread(target=self._supervise, name="engine-host", daemon=True)
        self._figures: dict[str, float] = {}  # as the process said last
        self.restarts = 0  # since it was made
        self.on_broken: Callable[[KaikouError], None] = lambda error: (
            None
        )  # called once, when it had served and is not started again
        self.on_change: Callable[[], None] = lambda: None  # health() may say something else now

    @property
    def kind(self) -> str:
        return self._recipe["kind"]

    @property
    def pid(self) -> int | None:
        """Of the process that is alive now."""
        life = self._life
        return life.pid if life is not None and not life.over.is_set() else None

    # ---- Engine ----------------------------------------------------------------------------------
    def start(self) -> None:
        """Raises what the engine's own start raised, or NotReady when its process died on the way
        as often as is borne.
        """
        self._thread.start()
        self._first.result()

    def describe(self) -> Abilities:
        if self._about is None:
            raise self._not_ready()
        return self._about

    def health(self) -> Health:
        return self._health

    def encode(self, samples: np.ndarray, rate: int, transcript: str, language: str) -> Prompt:
        question = {
            "op": "encode",
            "rate": int(rate),
            "transcript": transcript,
            "language": language,
        }
        words, body = self._serving().ask(
            question, memoryview(np.ascontiguousarray(samples, np.float32).reshape(-1))
        )
        return prompt_of(words["prompt"], body)

    def prepare(self, prompt: Prompt) -> None:
        self._serving().ask({"op": "prepare"}, prompt=prompt)

    def preset(self, name: str) -> Prompt:
        words, body = self._serving().ask({"op": "preset", "name": name})
        return prompt_of(words["prompt"], body)

    def notes(self, request: SpeechRequest) -> list[tuple[str, str]]:
        return [
            (en, zh)
            for en, zh in self._serving().ask({"op": "notes", "request": words_of(request)})[0][
                "notes"
            ]
        ]

    def check(self, request: SpeechRequest, prompt: Prompt) -> list[tuple[str, str]]:
        question = {"op": "check", "request": words_of(request)}
        words, _ = self._serving().ask(question, prompt=prompt)
        return [(en, zh) for en, zh in words["notes"]]

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        return self._speech({"how": "stream", "request": words_of(request), "lane": lane}, prompt)

    def convert(
        self, request: SpeechRequest, prompt: Prompt, samples: np.ndarray, rate: int, lane: int = 0
    ) -> Iterator[Chunk]:
        opening = {"how": "convert", "request": words_of(request), "lane": lane, "rate": int(rate)}
        return self._speech(
            opening, prompt, memoryview(np.ascontiguousarray(samples, np.float32).reshape(-1))
        )

    def stream_text(
        self, request: SpeechRequest, prompt: Prompt, pieces: Iterable[str]
    ) -> Iterator[Chunk]:
        """As `stream`, for a text that is still arriving; only where the engine has it.

        `pieces` is taken from inside `next()`.
        """
        return self._speech(
            {"how": "text", "request": words_of(request)}, prompt, pieces=iter(pieces)
        )

    def _speech(
        self, opening: dict, prompt: Prompt, body=b"", pieces: Iterator[str] | None = None
    ) -> ClientStream:
        return ClientStream(self._serving(), next(self._numbers), opening, prompt, body, pieces)

    def forget(self, fingerprint: str) -> None:
        life = self._life
        if life is not None:
            life.forget(fingerprint)

    def figures(self) -> dict[str, float]:
        return self._figures

    def cancel(self, request_id: str) -> None:
        life = self._life
        if life is not None:
            life.post({"op": "cancel", "request": request_id})

    def close(self) -> None:
        with self._lock:
            self._closing.set()
            self._is_ready, life = False, self._life
            self._health, self._refusal = (
                Health("draining", *message("health.process_closed")),
                closing,
            )
        if life is not None:
            life.leave(closing)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- who may be asked ------------------------------------------------------------------------
    def _serving(self) -> ChildProcess:
        with self._lock:
            if self._is_ready:
                return self._life
        raise self._not_ready()

    def _not_ready(self) -> KaikouError:
        if self._refusal is not None:
            return self._refusal()
        wait_s = max(
            1, math.ceil(self._start_s - (time.monotonic() - self._born_s if self._born_s else 0.0))
        )
        return NotReady("notready.process_starting", retry_after_s=wait_s)

    # ---- the supervisor's thread -----------------------------------------------------------------
    def _supervise(self) -> None:
        try:
            while not self._closing.is_set():
                fault, code = self._live()
                if self._closing.is_set() or not self._goes_on(fault, code):
                    break
        finally:
            if not self._first.done():
                self._first.set_exception(self._not_ready())

    def _live(self) -> tuple[KaikouError, int]:
        """One process from birth to end."""
        self._born_s, self._still = time.monotonic(), 0
        try:
            life = ChildProcess(
                self._program, self._timeouts.beat_s, lambda words: self._on_message(life, words)
            )
        except OSError as error:
            why = error.strerror or str(error)
            return (
                EngineFault("engine_lost.not_made", why=why),
                0,
            )
        with self._lock:
            self._life = life
        life.post(self._recipe)
        if self._closing.is_set():
            life.end(closing)
        self._watch(life)
        with self._lock:
            self._is_ready = False
        return life.error(), life.kill(self._timeouts.bye_s)

    def _watch(self, life: ChildProcess) -> None:
        """Look once per beat until it is over.

        Beats are counted, so a time in which nobody ran counts little.
        """
        timeouts, n_beats, silent = self._timeouts, 0, 0
        while not life.over.wait(timeouts.beat_s):
            frozen_s, still_s = (
                (timeouts.frozen_s, timeouts.still_s)
                if self._is_ready
                else (timeouts.start_frozen_s, timeouts.start_still_s)
            )
            n_beats, silent = life.beats, 0 if life.beats != n_beats else silent + 1
            if silent >= timeouts.beats(frozen_s):
                log.error(
                    "the engine's process has said nothing for %d beats of %.1f s",
                    silent,
                    timeouts.beat_s,
                )
                life.end(EngineStalled)
            elif self._still >= timeouts.beats(still_s):
                log.error(
                    "the engine has not moved for %d beats of %.1f s while asked to work",
                    self._still,
                    timeouts.beat_s,
                )
                life.end(EngineStalled)
            elif life.has_ended():
                life.end(engine_lost)

    def _on_message(self, life: ChildProcess, words: dict) -> None:
        """What the process says unasked; in its reading thread."""
        op = words["op"]
        if op == "beat":
            self._still, self._figures = words["still"], words["figures"]
            self._heard_health(life, record_of(Health, words["health"]))
        elif op == "ready":
            with self._lock:
                if self._closing.is_set() or life.over.is_set():
                    return
                self._about, self._is_ready = record_of(Abilities, words["about"]), True
                self._health = Health("ready")
            self._start_s = time.monotonic() - self._born_s
            log.info("the engine's process %d is ready after %.1f s", life.pid, self._start_s)
            self.on_change()
            if not self._first.done():
                self._first.set_result(None)
        elif op == "failed":
            if not self._first.done():
                self._refuse(
                    lambda: error_from_dict(words["error"])
                )  # what cannot start the first time is told, not tried again
            life.end(lambda: error_from_dict(words["error"]))
        elif op == "ill":
            life.end(lambda: error_from_dict(words["error"]))

    def _heard_health(self, life: ChildProcess, health: Health) -> None:
        if self._is_ready and health.state == "broken":
            life.end(
                lambda: EngineFault(
                    Message(
                        health.reason or engine_lost().en, health.reason_zh or engine_lost().zh
                    ),
                    code="engine_lost",
                )
            )
            return
        if health.state == "starting" and self.restarts:
            reason = Message(health.reason, health.reason_zh)
            en, zh = message("health.restarting", reason=reason)
            health = replace(health, reason=en, reason_zh=zh)
        if self._is_ready or (health.state == "starting" and health.reason):
            with self._lock:
                if self._closing.is_set() or self._refusal is not None or life.over.is_set():
                    return
                is_new, self._health = health.state != self._health.state, health
            if is_new:
                self.on_change()

    # ---- after an end ----------------------------------------------------------------------------
    def _goes_on(self, fault: KaikouError, code: int) -> bool:
        """False when it is over for good. Else waits out the back-off."""
        if self._refusal is not None:
            return False
        ended = f"{fault.en} [{_ending(code)}]"
        now, timeouts = time.monotonic(), self._timeouts
        while self._restarts and now - self._restarts[0] > timeouts.window_s:
            self._restarts.popleft()
        n = len(self._restarts)
        if n >= timeouts.max_restarts:
            broken = partial(
                NotReady,
                "broken.gave_up",
                n=n + 1,
                minutes=max(1, round(timeouts.window_s / 60)),
                fault=Message(ended, fault.zh),
            )
            log.error("%s", broken())
            self._refuse(broken)
            if self._first.done() and not self._closing.is_set():
                self.on_broken(broken())
            return False
        log.error(
            "the engine's process is lost (%s); restart %d of %d",
            ended,
            n + 1,
            timeouts.max_restarts,
        )
        with self._lock:
            if not self._closing.is_set():
                self._health = Health("starting", fault.en, fault.zh)
        self.on_change()
        self._restarts.append(now)
        self.restarts += 1
        self._born_s = 0.0
        return not self._closing.wait(timeouts.back_off_s[min(n, len(timeouts.back_off_s) - 1)])

    def _refuse(self, why: Callable[[], KaikouError]) -> None:
        with self._lock:
            if not self._closing.is_set():
                self._refusal, self._is_ready = why, False
                self._health = Health("broken", why().en, why().zh)


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed, perhaps because memory ran out"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
