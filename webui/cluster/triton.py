"""A model of Triton Inference Server: requests as JSON and bytes in, chunks out, all streams
stepped by the scheduler of a studio. Knows no Triton: the `model.py` of an exported repository
hands it what came and sends what it gives.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import shlex
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from .. import text
from ..engine.base import Engine
from ..engine.remote.protocol import chunk_of, prompt_of, words_of
from ..errors import BadBody, BadInput, Busy, EngineFault, KaikouError, NotFound
from ..settings import load
from ..studio.request_builder import requested_language
from ..studio.scheduler import Scheduler
from ..studio.speech_job import UNLIMITED
from ..types import Chunk, Prompt, SpeechRequest
from .__main__ import make_engine
from .job import RemoteJob, open_stream
from .messages import BUSY_RETRY_S
from .prompts import PromptCache

OPENINGS = 2  # requests whose voice is made at the same moment
log = logging.getLogger(__name__)
FIELDS = {
    "text", "mode", "instruction", "language", "speed", "seed", "transcript", "voice_engine",
}  # fmt: skip
CODES = {429: "UNAVAILABLE", 503: "UNAVAILABLE", 404: "NOT_FOUND", 499: "CANCELLED"}


class Sender(Protocol):
    """Where the responses of one request go, from any thread, until `fail` or the last chunk."""

    def is_gone(self) -> bool:
        """Whether nobody waits for them any more."""

    def chunk(self, chunk: Chunk, rate: int, key: str) -> None:
        """key: names the voice to later requests."""

    def fail(self, error: KaikouError) -> None: ...


def code_of(error: KaikouError) -> str:
    """The name of Triton's code for it."""
    return CODES.get(error.status, "INVALID_ARG" if error.status < 500 else "INTERNAL")


def request_of(words: dict, engine: Engine) -> SpeechRequest:
    """As a studio would ask for it: in segments, in a language, of one of the engine's voices.

    Raises BadInput, and ValueError or TypeError for what is no request.
    """
    if words.keys() - FIELDS:
        raise ValueError(f"foreign fields: {sorted(words.keys() - FIELDS)}")
    about = engine.describe()
    request = SpeechRequest(secrets.token_hex(8), **words, voice="")
    if not about.min_speed <= request.speed <= about.max_speed:
        limits = {"low": about.min_speed, "high": about.max_speed}
        raise BadInput("bad_speed.engine", **limits, param="speed")
    language = requested_language(request.text, request.language)
    plain = text.strip_tags(request.text, about.tags)
    segments = text.prepare(plain, language, rule=about.segmentation)
    if not segments:
        raise BadInput("no_text", param="input")
    request = replace(request, language=language, segments=tuple(segments))
    return engine.settle(request)[0] if about.voice_engines else request


class TritonJob(RemoteJob):
    """A request of Triton as the scheduler sees it. Triton takes chunks as they come and says
    nothing of its reader, so there is no credit.
    """

    def __init__(self, request: SpeechRequest, rate: int, key: str, sender: Sender):
        opening = {"how": "stream", "request": words_of(request), "credit": UNLIMITED}
        super().__init__(opening, b"", rate, self._respond)
        self._key, self._sender = key, sender

    def _respond(self, words: dict, samples: memoryview) -> None:
        self._sender.chunk(chunk_of(words["chunk"], samples), self.rate, self._key)
        if not words["chunk"]["last"] and self._sender.is_gone():
            self.leave()

    def fail(self, error: KaikouError) -> None:
        if not self.is_over:
            self.is_over = True
            self._sender.fail(error)


class TritonSpeech:
    """The engine is started already. max_streams: open at once; one more is refused."""

    def __init__(self, engine: Engine, stall_s: float, max_streams: int):
        self._engine, self._room = engine, threading.Semaphore(max_streams)
        self._scheduler, self._prompts = Scheduler(engine, stall_s, open_stream), PromptCache()
        self._openings = ThreadPoolExecutor(OPENINGS, "triton-opening")

    @classmethod
    def started(cls, parameters: Mapping[str, str]) -> TritonSpeech:
        """parameters: of the model's configuration; `arguments` are flags of run.sh.

        Raises KaikouError.
        """
        settings = load(shlex.split(parameters["arguments"]))
        engine = make_engine(settings)
        engine.start()
        return cls(engine, settings.limits.stall_s, int(parameters["streams"]))

    def close(self) -> None:
        self._openings.shutdown()
        self._scheduler.close()
        self._engine.close()

    def speak(self, words: bytes, body: bytes, sender: Sender) -> None:
        """Returns at once. words: JSON {request, and one of key, preset, prompt, reference}; body:
        the bytes of that prompt, or float32 samples of that reference.
        """
        if self._room.acquire(blocking=False):
            self._openings.submit(self._open, words, body, sender)
        else:
            sender.fail(Busy("busy.fleet", retry_after_s=BUSY_RETRY_S))

    def _open(self, words: bytes, body: bytes, sender: Sender) -> None:
        try:
            about = self._engine.describe()
            try:
                opening = json.loads(words)
                request = request_of(opening["request"], self._engine)
                make_prompt = self._voice(opening, body)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("what was asked has no sense: %r", error)
                raise BadBody from error
            prompt = make_prompt()
            if (prompt.engine, prompt.version) != (about.name, about.prompt_version):
                raise BadInput("voice_other_engine", engine=prompt.engine[:40], param="voice")
            job = TritonJob(request, about.sample_rate, self._prompts.put(prompt), sender)
            self._scheduler.add(job, prompt, lambda _: self._room.release())
        except Exception as error:
            self._room.release()
            if not isinstance(error, KaikouError):
                log.exception("a request could not be begun")
            sender.fail(error if isinstance(error, KaikouError) else EngineFault())

    def _voice(self, opening: dict, body: bytes) -> Callable[[], Prompt]:
        """What makes the prompt, which may take its time."""
        if "key" in opening:
            return partial(self._prompt_of, str(opening["key"]))
        if "preset" in opening:
            return partial(self._engine.preset, str(opening["preset"]))
        if "prompt" in opening:
            # named by its content: nobody can put another voice in the place of one that is known
            own = hashlib.sha256(body).hexdigest()[:32]
            prompt = replace(prompt_of(opening["prompt"], body), fingerprint=own)
            return lambda: prompt
        clip, samples = opening["reference"], np.frombuffer(bytearray(body), np.float32)
        words = str(clip.get("transcript", "")), str(clip.get("language", ""))
        return partial(self._engine.encode, samples, int(clip["rate"]), *words)

    def _prompt_of(self, key: str) -> Prompt:
        prompt = self._prompts.get(key)
        if prompt is None:
            raise NotFound("not_found.prompt_key", param="key")
        return prompt
