"""ClusterEngine: an Engine whose streams are spoken by the replicas of a fleet."""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import httpx
import numpy as np

from ..engine.remote.protocol import prompt_of, record_of, words_of, words_of_prompt
from ..errors import Busy, KaikouError, NotReady
from ..messages import Message, message
from ..types import Abilities, Chunk, Health, Prompt, SpeechRequest
from .connection import CONNECT_S, Beats, Connection, Lost, Refused, WrongVersion
from .messages import BUSY_RETRY_S, PATH, PROTOCOL
from .prompts import key_of
from .stream import MAX_TRIES, ClusterStream, StreamCounts, fleet_lost

log = logging.getLogger(__name__)
ASK_S = 2.0  # between two questions of how the fleet is
MAX_LANES = 64  # streams of one studio that may be stepped at the same moment
VERSION_TRIES = 6  # replicas asked for one of the right version while a fleet is being renewed


class ClusterEngine:
    """address: HOST:PORT of the fleet's proxy. key: "" where the fleet asks for none."""

    def __init__(self, address: str, key: str = ""):
        self._address, self._key = address, key
        self._socket_url = f"ws://{address}{PATH}"
        self._http = httpx.Client(
            base_url=f"http://{address}",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=CONNECT_S,
        )
        self._cell = secrets.token_hex(8)
        self._about: Abilities | None = None
        self._health = Health("starting", *message("fleet_asked"))
        self._closing = threading.Event()
        self._beats = Beats()
        self._streams: weakref.WeakSet[ClusterStream] = weakref.WeakSet()
        self._forgotten: set[str] = set()  # fingerprints that not every replica has confirmed
        self._lock = threading.Lock()
        self._counts = StreamCounts()
        self._loads: list[dict] = []  # of the replicas, at the last answer
        self._is_answering = False
        self.on_change: Callable[[], None] = lambda: None

    # ---- how the fleet is ------------------------------------------------------------------------
    def start(self) -> None:
        """Raises NotReady when nobody answers at the address, or something else than a fleet."""
        self._ask()
        if self._about is None:
            raise self._not_ready()
        threading.Thread(target=self._watch, name="cluster-watch", daemon=True).start()

    def _watch(self) -> None:
        while not self._closing.wait(ASK_S):
            self._ask()
            self._confirm_forgotten()

    def _confirm_forgotten(self) -> None:
        with self._lock:
            fingerprints = list(self._forgotten)
        for fingerprint in fingerprints:
            self._forget(fingerprint)

    def _ask(self) -> None:
        """Of all replicas together: what they can, and this studio's share of them."""
        before = self._health, self._about
        try:
            answer = self._http.get("/about", params={"cell": self._cell})
            answer.raise_for_status()
            about = answer.json()
            if about["protocol"] != PROTOCOL:
                raise ValueError(f"protocol {about['protocol']}")
            self._about, self._health = self._share(about)
            self._is_answering = True
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            log.warning("the fleet at %s cannot be asked: %s", self._address, error)
            self._is_answering = False
            self._health = Health(
                "starting" if self._about is None else "busy",
                *message("fleet_silent", address=self._address),
            )
        if (self._health, self._about) != before:
            self.on_change()

    def _share(self, about: dict) -> tuple[Abilities, Health]:
        loads = self._loads = about["loads"]
        n_cells = max(1, len({cell for load in loads for cell in load["cells"]}))
        capacity = sum(load["capacity"] for load in loads)
        if about["reads_transcripts"]:  # the studio asks by the presence of the method
            self.check = self._check
        abilities = record_of(Abilities, about["abilities"])
        return replace(
            abilities, lanes=MAX_LANES, speed=0.0, streams=max(1, capacity // n_cells)
        ), Health("ready")

    def describe(self) -> Abilities:
        if self._about is None:
            raise self._not_ready()
        return self._about

    def health(self) -> Health:
        return self._health

    def _not_ready(self) -> NotReady:
        return NotReady("fleet_away", address=self._address, retry_after_s=ASK_S)

    # ---- Engine ----------------------------------------------------------------------------------
    def encode(self, samples: np.ndarray, rate: int, transcript: str, language: str) -> Prompt:
        words = {"rate": int(rate), "transcript": transcript, "language": language}
        data = memoryview(np.ascontiguousarray(samples, np.float32).reshape(-1)).cast("B")
        answer, body = self._call("encode", words, data)
        return prompt_of(answer["prompt"], body)

    def prepare(self, prompt: Prompt) -> None:
        self._call("prepare", {}, prompt=prompt)

    def preset(self, name: str) -> Prompt:
        answer, body = self._call("preset", {"preset": name})
        return prompt_of(answer["prompt"], body)

    def notes(self, request: SpeechRequest) -> list[Message]:
        return _notes(self._call("notes", {"request": words_of(request)})[0])

    def _check(self, request: SpeechRequest, prompt: Prompt) -> list[Message]:
        return _notes(self._call("check", {"request": words_of(request)}, prompt=prompt)[0])

    def settle(self, request: SpeechRequest) -> tuple[SpeechRequest, list[Message]]:
        answer, _ = self._call("settle", {"request": words_of(request)})
        return record_of(SpeechRequest, answer["request"]), _notes(answer)

    def stream(self, request: SpeechRequest, prompt: Prompt, lane: int = 0) -> Iterator[Chunk]:
        return self._stream("stream", request, prompt)

    def convert(
        self, request: SpeechRequest, prompt: Prompt, samples: np.ndarray, rate: int, lane: int = 0
    ) -> Iterator[Chunk]:
        data = memoryview(np.ascontiguousarray(samples, np.float32).reshape(-1)).cast("B")
        return self._stream("convert", request, prompt, data, int(rate))

    def stream_text(
        self, request: SpeechRequest, prompt: Prompt, pieces: Iterable[str]
    ) -> Iterator[Chunk]:
        return self._stream("text", request, prompt, pieces=iter(pieces))

    def forget(self, fingerprint: str) -> None:
        """Kept until every replica has confirmed it, however often the fleet must be asked."""
        with self._lock:
            self._forgotten.add(fingerprint)
        threading.Thread(
            target=self._forget, args=(fingerprint,), name="cluster-forget", daemon=True
        ).start()

    def _forget(self, fingerprint: str) -> None:
        try:
            self._http.post("/forget", params={"fingerprint": fingerprint}).raise_for_status()
        except httpx.HTTPError as error:
            log.warning("a deleted voice is not yet gone from the fleet: %s", error)
            return
        with self._lock:
            self._forgotten.discard(fingerprint)

    @property
    def n_unconfirmed(self) -> int:
        """Deleted voices that some replica may still hold."""
        return len(self._forgotten)

    def figures(self) -> dict[str, float]:
        """Of the replicas together, as they said last, and of this studio's streams."""
        loads = self._loads
        sums = Counter()
        for load in loads:
            sums.update(load.get("figures", {}))
        return {
            "fleet_answering": self._is_answering,
            "fleet_replicas": len(loads),
            "fleet_streams_open": sum(load["open"] for load in loads),
            "fleet_streams_wanting": sum(load["wanting"] for load in loads),
            "fleet_capacity": sum(load["capacity"] for load in loads),
            "fleet_forgets_unconfirmed": self.n_unconfirmed,
            **self._counts.to_dict(),
            **sums,
        }

    def cancel(self, request_id: str) -> None:
        for stream in list(self._streams):
            if stream.request.id == request_id:
                stream.cancel()

    def close(self) -> None:
        self._closing.set()
        self._beats.close()
        self._health = Health("draining", *message("fleet_left"))
        self._http.close()

    # ---- connections -----------------------------------------------------------------------------
    def _stream(
        self, how: str, request: SpeechRequest, prompt: Prompt, body=b"", rate=0, pieces=None
    ) -> ClusterStream:
        version = self.describe().version
        stream = ClusterStream(
            lambda: self._connect(version), how, request, prompt, body, rate, pieces, self._counts
        )
        self._streams.add(stream)
        return stream

    def _connect(self, version: str = "") -> Connection:
        """Raises Lost, Busy when nobody of the fleet has room, NotReady."""
        for _ in range(VERSION_TRIES):
            try:
                connection = Connection(self._socket_url, self._key, version)
            except WrongVersion as error:
                log.info("a replica of version %s was passed over", error)
                continue
            except Refused as error:
                raise self._refusal(error.status) from error
            self._beats.add(connection)
            return connection
        raise NotReady("fleet_version", retry_after_s=ASK_S)

    def _refusal(self, status: int) -> KaikouError:
        if status in (401, 403):
            return NotReady("fleet_key")
        return Busy("busy.fleet", retry_after_s=BUSY_RETRY_S)

    def _call(
        self, name: str, words: dict, body=b"", prompt: Prompt | None = None
    ) -> tuple[dict, bytes]:
        """A question that is no stream, to another replica when one is lost.

        Raises the engine's error, or EngineFault when the fleet loses it again and again.
        """
        question = {"op": "call", "name": name, **words}
        if prompt is not None:
            question["key"] = key_of(prompt)
        for _ in range(MAX_TRIES):
            try:
                return self._ask_one(question, body, prompt)
            except Lost as why:
                log.warning("the question %s was lost with its replica: %s", name, why)
        raise fleet_lost()

    def _ask_one(self, question: dict, body, prompt: Prompt | None) -> tuple[dict, bytes]:
        connection = self._connect()
        try:
            connection.send(question, body)
            while True:
                answer, data = connection.receive()
                if answer["op"] == "answer":
                    return answer, data
                if answer["op"] == "prompt_wanted" and prompt is not None:
                    self._counts.add("fleet_prompt_misses")
                    words = {"op": "prompt", "prompt": words_of_prompt(prompt)}
                    connection.send(words, prompt.data)
                else:
                    raise Lost(answer["op"])
        finally:
            connection.close()


def _notes(answer: dict) -> list[Message]:
    return [Message(*pair) for pair in answer["notes"]]
