"""The built-in voice as an Engine: lanes of worker processes that speak, one more that listens to
references, and the natural voice beside them. No signal processing here.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ...errors import BadInput, Cancelled, EngineFault, KaikouError, NotReady
from ...messages import Message, message
from ...text import EVENTS, unknown_tags
from ...types import MODES, Abilities, Chunk, Health, Prompt, SpeechRequest
from .instructions import STYLES, understood
from .text_plan import cannot_read
from .worker_process import START_S, WorkerConnection

NAME = "builtin"
PROMPT_VERSION = "7"  # raised when prompts are other ones, or are read otherwise
# raised when the same seed gives other samples; what computes them is always the same
VERSION = "8+fp32.cpu"
RATE_HZ = 24000
LANGUAGES = ("zh", "yue", "en", "ja", "ko", "ru")
MAX_PROMPTS = 128
# of one step, when nobody listens: fewer questions to the worker, which stops earlier when it is
# called
STRETCH_S = 12.0


class Speech:
    """The iterator of one request.

    Each `next()` is one question to its lane; closing or losing it frees the worker's state.
    """

    def __init__(
        self,
        lane: WorkerConnection,
        number: int,
        request: SpeechRequest,
        prompt: Prompt,
        can_stop: bool = False,
    ):
        """can_stop: a step of this lane's program ends at once when it is rung for."""
        self._lane, self._number, self._request, self._prompt = lane, number, request, prompt
        self._can_stop = can_stop
        self._most = int(STRETCH_S * RATE_HZ) if request.priority > 0 else 0
        self._life: int | None = None
        self._count = self._start = 0
        self._over = self._cancelled = False

    def __iter__(self) -> Speech:
        return self

    def __next__(self) -> Chunk:
        if self._cancelled and not self._over:
            self.close()
            raise Cancelled()
        if self._over:
            raise StopIteration
        try:
            header, body = (
                self._open()
                if self._life is None
                else self._lane.ask(self._step(), life=self._life)
            )
        except BaseException:
            self._over = True
            raise
        samples = np.frombuffer(body, np.float32)
        chunk = Chunk(
            self._count,
            samples,
            self._start,
            header["segment"],
            header["last"],
            MappingProxyType(header["timings"]),
        )
        self._count += 1
        self._start += len(samples)
        self._over = header["last"]
        if self._cancelled and not self._over:
            self.close()
            raise Cancelled()
        return chunk

    def _step(self) -> dict:
        return (
            {"op": "step", "stream": self._number, "most": self._most}
            if self._most
            else {"op": "step", "stream": self._number}
        )

    def _open(self) -> tuple[dict, bytes]:
        r = self._request
        order = {
            "segments": r.segments or (r.text,),
            "language": r.language,
            "speed": r.speed,
            "seed": r.seed,
            "instruction": "",
            "at_once": bool(self._most),
            "first": r.first_segment,
        }
        if r.mode in ("instruct", "preset"):
            order["instruction"] = r.instruction
        question = {**self._step(), "voice": self._prompt.fingerprint, "open": order}
        life = self._lane.life
        header, body = self._lane.ask(question)
        if "need" in header:
            self._lane.ask({"op": "voice", "voice": self._prompt.fingerprint}, self._prompt.data)
            life = self._lane.life
            header, body = self._lane.ask(question)
        if "need" in header:
            raise EngineFault()
        self._life = max(life, 1)
        return header, body

    def cancel(self) -> None:
        self._cancelled = True
        if self._can_stop:
            self._lane.ring(self._number)
        elif self._most:
            self._lane.ring()
        self._release()

    def close(self) -> None:
        self._release()
        self._over = True

    def _release(self) -> None:
        if self._life is not None and not self._over:
            self._lane.drop(self._number, self._life)

    def __del__(self):
        self._release()


class EspeakEngine:
    """workers = lanes. stall_s: a worker silent for so long is replaced. library: path of a system
    libespeak-ng, "" = find one.
    natural: folders where the weights of the natural voice are, or are put; it is brought up in the
      background, and speaks beside the
    instant voice on the same lanes' numbers.
    """

    def __init__(
        self,
        workers: int = 2,
        stall_s: float = 10.0,
        library: str = "",
        natural: Sequence[Path] = (),
    ):
        flags = (f"--library={library}",) if library else ()
        self._lanes = [WorkerConnection(*flags, stall_s=stall_s) for _ in range(workers)]
        self._listener = WorkerConnection("--encode", *flags, stall_s=max(stall_s, 30.0))
        from ..natural import workers as module  # which itself needs this room

        self.natural = module.NaturalLanes(natural, workers, library)
        self._voice_versions = {"natural": module.VERSION}
        self._numbers = itertools.count(1)
        self._speeches: dict[str, weakref.WeakSet[Speech]] = {}
        self._prompts: OrderedDict[str, Prompt] = OrderedDict()
        self._guard = threading.Lock()
        self._rtf = 0.02
        self._health = Health("starting", *message("health.builtin_starting"))

    def describe(self) -> Abilities:
        return Abilities(
            NAME, VERSION, RATE_HZ, MODES, LANGUAGES, lanes=len(self._lanes), min_speed=0.6,
            max_speed=1.85, rtf=self._rtf,
            styles=STYLES, basic=True, prompt_version=PROMPT_VERSION,
            voice_engines=self.natural.voice_engines(self._rtf),
            voice_versions=self._voice_versions,
            natural=self.natural.state(), voice_note=self.natural.note(),
        )  # fmt: skip

    def start(self) -> None:
        def warm(lane: WorkerConnection) -> float:
            lane.start()
            return lane.ask({"op": "stock" if lane is self._listener else "warm"}, limit_s=START_S)[
                0
            ].get("rtf", 0.0)

        lanes = [*self._lanes, self._listener]
        try:
            with ThreadPoolExecutor(len(lanes)) as pool:
                self._rtf = max(list(pool.map(warm, lanes))[:-1])
        except KaikouError as e:
            self._move(Health("broken", e.en, e.zh))
            for lane in lanes:
                lane.close()
            raise
        self._move(Health("ready"))
        if self.natural.is_wanted:
            threading.Thread(target=self.natural.start, name="natural-start", daemon=True).start()

    def _move(self, health: Health) -> None:
        """On from starting, unless it was closed meanwhile."""
        with self._guard:
            if self._health.state == "starting":
                self._health = health

    def encode(
        self, samples: np.ndarray, rate: int, transcript: str = "", language: str = ""
    ) -> Prompt:
        """samples float32 mono (n,) at `rate` Hz -> Prompt.

        Raises BadInput: not_finite, silent, too_short.
        """
        sound = np.ascontiguousarray(samples, dtype=np.float32).reshape(-1)
        if not math.isfinite(float(sound.sum(dtype=np.float64))):
            raise BadInput("not_finite.reference", param="reference")
        fingerprint = hashlib.sha256(
            f"{NAME} {PROMPT_VERSION} {rate} {language} {transcript} ".encode() + sound.tobytes()
        ).hexdigest()
        with self._guard:
            if fingerprint in self._prompts:
                self._prompts.move_to_end(fingerprint)
                return self._prompts[fingerprint]
        header, data = self._listener.ask(
            {"op": "encode", "rate": int(rate), "transcript": transcript, "language": language},
            memoryview(sound),
        )
        prompt = Prompt(NAME, PROMPT_VERSION, fingerprint, data, tuple(header["notes"]))
        with self._guard:
            self._prompts[fingerprint] = prompt
            while len(self._prompts) > MAX_PROMPTS:
                self._prompts.popitem(last=False)
        return prompt

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        if prompt.engine != NAME or prompt.version != PROMPT_VERSION:
            raise EngineFault("wrong_prompt")
        if not request.voice_engine:
            request, _ = self.settle(request)
        # a text that arrives in pieces is settled by its first: a later one may be in another
        # script
        is_natural = request.voice_engine == "natural" and self.natural.can_say(request)
        lanes = self.natural.lanes if is_natural else self._lanes
        if not lanes:
            health = self.natural.health()
            raise NotReady(
                Message(health.reason, health.reason_zh), code="no_natural", retry_after_s=5
            )
        speech = Speech(lanes[lane], next(self._numbers), request, prompt, is_natural)
        with self._guard:
            for name in [k for k, s in self._speeches.items() if not len(s)]:
                del self._speeches[name]
            self._speeches.setdefault(request.id, weakref.WeakSet()).add(speech)
        return speech

    def cancel(self, request_id: str) -> None:
        with self._guard:
            speeches = list(self._speeches.pop(request_id, ()))
        for speech in speeches:
            speech.cancel()

    def settle(self, request: SpeechRequest) -> tuple[SpeechRequest, list[tuple[str, str]]]:
        chosen, notes = self.natural.choose(request)
        return replace(request, voice_engine=chosen), notes

    def make_way(self, lane: int) -> None:
        for lanes in (self._lanes, self.natural.lanes):
            if lanes:
                lanes[lane].ring()

    def prepare(self, prompt: Prompt) -> None:
        """A profile costs an instant lane milliseconds: nothing to do ahead."""
        self.natural.prepare(prompt)

    def forget(self, fingerprint: str) -> None:
        with self._guard:
            self._prompts.pop(fingerprint, None)
        for lane in (*self._lanes, *self.natural.lanes):
            lane.forget(fingerprint)

    def notes(self, request: SpeechRequest) -> list[tuple[str, str]]:
        instruction_notes = (
            understood(request.instruction)[1] if request.instruction.strip() else []
        )
        tags = [
            message("note.unknown_tag", tag=tag) for tag in unknown_tags(request.text, EVENTS)[:3]
        ]
        return [*instruction_notes, *tags, *cannot_read(request.text, request.language)]

    def health(self) -> Health:
        trouble = next((lane.trouble for lane in self._lanes if lane.trouble), None)
        if trouble and self._health.state == "ready":
            return Health("broken", trouble.en, trouble.zh)
        return self._health

    def counts(self) -> list[dict]:
        """Per lane: open streams, cached voices, source samples spoken, peak memory.

        For tests and the meter.
        """
        return [lane.ask({"op": "count"})[0] for lane in self._lanes]

    def close(self) -> None:
        self.natural.close()
        for lane in (*self._lanes, self._listener):
            lane.close()
        with self._guard:
            self._health = Health("draining", *message("health.builtin_closed"))
