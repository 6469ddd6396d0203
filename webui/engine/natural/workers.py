"""The natural voice as the engine has it: its lanes on one process, whether they are there, and
which requests they can speak. No network here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ...errors import KaikouError, NotReady
from ...messages import message
from ...types import Health, Prompt, SpeechRequest
from ..espeak.instructions import read
from ..espeak.worker_process import WorkerConnection, WorkerProcess
from . import weights

log = logging.getLogger(__name__)
# raised when the same seed gives other samples, also by the mapping that both voices share; the
# part behind + names what computes them
VERSION = "natural-3+fp32.cpu"
Sentence = tuple[str, str]  # English, Chinese
# seconds of work per second of sound: slower than this it is offered, and not the default
SLOWEST_DEFAULT = 0.9
STALL_S = 30.0  # the trunk of a clause takes seconds on a busy machine
RETRY_S = 20.0  # between two tries to bring back a process that could not be started again
WARM_S = 180.0  # nobody waits for it, and what fails here is not tried again before the next start
LANGUAGES = ("", "auto", "zh", "en")
STARTING = message("health.natural_starting")
_ABSENT = message("health.natural_absent")
_STYLE = message("note.natural_style")
_TEXT = message("note.natural_language")


class NaturalLanes:
    """folders: where the weights are, or are put; none = there is no natural voice here.

    Thread-safe.
    """

    def __init__(self, folders: Sequence[Path], n_lanes: int, library: str = ""):
        self._folders, self._n_lanes, self._library = tuple(folders), n_lanes, library
        self._lock = threading.Lock()
        self._is_closed = False
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="natural-prepare")
        self._process: WorkerProcess | None = None
        self._next_try_s = 0.0  # on the monotonic clock
        self.lanes: list[WorkerConnection] = []  # empty until they speak
        self.rtf = 0.0
        self.is_decided = threading.Event()  # it is ready, or will not be
        self._health = (
            Health("starting", *STARTING) if self._folders else Health("broken", *_ABSENT)
        )

    @property
    def is_wanted(self) -> bool:
        return bool(self._folders)

    def start(self) -> None:
        """Loads the network and speaks a warm-up sentence.

        Blocking. A failure is the health, and no error.
        """
        lanes: list[WorkerConnection] = []
        try:
            if find_spec("onnxruntime") is None:
                raise NotReady("natural_missing.onnxruntime")

            file = weights.obtain(self._folders)
            flags = [f"--library={self._library}"] if self._library else []
            process = WorkerProcess(
                "webui.engine.natural.worker", f"--weights={file}", *flags, n_lanes=self._n_lanes
            )
            self._process = process
            lanes = [
                WorkerConnection(stall_s=STALL_S, process=process, lane=n)
                for n in range(self._n_lanes)
            ]
            for lane in lanes:
                lane.start()
            self.rtf = lanes[0].ask({"op": "warm"}, limit_s=WARM_S)[0]["rtf"]
        except (
            Exception
        ) as error:  # too little memory, a package that cannot be imported, a process that dies
            for lane in lanes:
                lane.close()
            self._health = _broken(error)
            log.warning("the natural voice is not to be had: %s (%r)", self._health.reason, error)
            self.is_decided.set()
            return
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                self.lanes, self._health = lanes, Health("ready")
        if is_late:
            for lane in lanes:
                lane.close()
        else:
            self.is_decided.set()
            log.info("the natural voice is ready: %.2f s of work per second of sound", self.rtf)

    def health(self) -> Health:
        lanes = self.lanes
        trouble = next((lane.trouble for lane in lanes if lane.trouble), None)
        return _broken(trouble) if trouble else self._health

    def voice_engines(self, instant_rtf: float = 0.0) -> dict[str, float]:
        """What a request may ask for, the default first -> seconds of work per second of sound."""
        if self.health().state != "ready":
            return {"instant": instant_rtf}
        rtfs = {"natural": self.rtf, "instant": instant_rtf}
        return dict(reversed(rtfs.items())) if self.rtf > SLOWEST_DEFAULT else rtfs

    def state(self) -> str:
        """As `Abilities.natural` has it."""
        if not self.is_wanted:
            return ""
        state = self.health().state
        return "slow" if state == "ready" and self.rtf > SLOWEST_DEFAULT else state

    def note(self) -> Sentence | None:
        """Why the natural voice is not the usual one."""
        health, state = self.health(), self.state()
        if state == "slow":
            return message("note.natural_slow", rtf=self.rtf)
        return (health.reason, health.reason_zh) if state in ("starting", "broken") else None

    def choose(self, request: SpeechRequest) -> tuple[str, list[Sentence]]:
        """("natural" or "instant", what the caller must know of it).

        Raises NotReady while the natural voice loads and nobody listens: then there is time to wait
        for it, and a batch does not begin with one voice and go on with the other.
        """
        health = self.health()
        if health.state == "broken" and request.voice_engine != "instant":
            self._try_again()
        if request.voice_engine == "instant" or (
            not request.voice_engine and self.state() not in ("starting", "ready")
        ):
            return "instant", []
        if health.state not in ("starting", "ready"):
            return "instant", [(health.reason, health.reason_zh)]
        if reason := _unspeakable(request):
            return "instant", [reason]
        if health.state == "ready":
            return "natural", []
        if request.priority > 0:
            raise NotReady("natural_loading", retry_after_s=2)
        return "instant", [STARTING]

    def _try_again(self) -> None:
        """In the background, for the requests that come later. Never waits."""
        with self._lock:
            now_s = time.monotonic()
            if now_s < self._next_try_s:
                return
            self._next_try_s = now_s + RETRY_S
        for lane in self.lanes:
            with suppress(RuntimeError):  # closed meanwhile
                self._preparing.submit(_wake, lane)

    def can_say(self, request: SpeechRequest) -> bool:
        return _unspeakable(request) is None

    def prepare(self, prompt: Prompt) -> None:
        """The base voices of a prompt are chosen ahead, in the background. Never waits."""
        for lane in self.lanes:
            with suppress(RuntimeError):  # closed meanwhile
                self._preparing.submit(_prepare, lane, prompt)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            lanes, process = self.lanes, self._process
        if process is not None:  # which may be loading still
            process.end(process.life)
        self._preparing.shutdown(wait=False, cancel_futures=True)
        for lane in lanes:
            lane.close()


def _broken(error: Exception) -> Health:
    """The reason as the panel says it.

    A process that died or hangs is told in words of its own: the usual ones speak of the whole
    engine.
    """
    if isinstance(error, NotReady) and error.code != "no_worker":
        return Health("broken", error.en, error.zh)
    reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    return Health("broken", *message("health.natural_broken", reason=reason))


def _wake(lane: WorkerConnection) -> None:
    with suppress(KaikouError):  # it stays broken, and says so
        lane.ask({"op": "count"})


def _prepare(lane: WorkerConnection, prompt: Prompt) -> None:
    with suppress(KaikouError):  # the first request says it
        question = {"op": "prepare", "voice": prompt.fingerprint}
        if "need" in lane.ask(question)[0]:
            lane.ask(question, prompt.data)


def _unspeakable(request: SpeechRequest) -> Sentence | None:
    from .phonemes import can_say

    if request.language not in LANGUAGES:
        return _TEXT
    if request.mode in ("instruct", "preset") and request.instruction.strip():
        style = read(request.instruction)
        if style.whisper or style.dialect:
            return _STYLE
    segments = [s for s in request.segments or (request.text,) if any(c.isalnum() for c in s)]
    return None if all(can_say(s, request.language) for s in segments) else _TEXT
