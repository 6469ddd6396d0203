"""The process of the natural voice: today's worker with a network, one for each lane.

All share the network and eSpeak.

`--weights=FILE` names the checked file; everything else is as engine/espeak/worker.py has it.
"""

from __future__ import annotations

import ctypes
import socket
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import onnxruntime

from ...errors import Cancelled
from ...frames import RING
from ..espeak.library import EspeakLibrary
from ..espeak.speech_stream import SpeechOrder
from ..espeak.voice_mapping import Mapping, Profile, neutral
from ..espeak.worker import WARM_TEXT, Worker, run
from . import styles
from .convolution import Scratch
from .network import RATE_HZ, Network
from .speech_stream import Stream
from .voice import NaturalVoice


class NaturalWorker(Worker):
    """A bell of its own is heard by a thread of its own: a step of the network is long, and ends
    early for a stream that nobody wants.
    """

    def __init__(
        self,
        speaker: EspeakLibrary,
        network: Network,
        base_voices: list[styles.BaseVoice],
        bell: socket.socket,
    ):
        super().__init__(speaker)
        self._network, self._base_voices = network, base_voices
        self._lock = threading.Lock()
        self._is_rung = threading.Event()
        self._stopped: deque[int] = deque(maxlen=64)  # streams that nobody wants
        self._stepping, self._run = 0, onnxruntime.RunOptions()  # of the stream at work
        self._ahead = ThreadPoolExecutor(1)
        self._scratch = Scratch()
        threading.Thread(target=self._hear, args=(bell,), daemon=True).start()

    def _hear(self, bell: socket.socket) -> None:
        bell.setblocking(True)
        source = bell.makefile("rb")
        while ring := source.read(RING.size):
            self.stop(*RING.unpack(ring))

    def stop(self, stream: int) -> None:
        """Ends a step of that stream, now or when it begins; 0: a long step in the background ends
        with the clause that it is at.
        """
        with self._lock:
            if not stream:
                self._is_rung.set()
                return
            self._stopped.append(stream)
            if stream == self._stepping:
                self._run.terminate = True

    def _is_called(self) -> bool:
        is_rung = self._is_rung.is_set()
        self._is_rung.clear()
        return is_rung

    def _on_step(self, question: dict, body: bytes) -> tuple[dict, bytes | memoryview]:
        number = question["stream"]
        with self._lock:
            if number in self._stopped:
                self._end(number)
                raise Cancelled()
            stream = self._streams.get(number)
            self._stepping = number
            self._run = stream.run if stream else onnxruntime.RunOptions()
        try:
            return super()._on_step(question, body)
        finally:
            with self._lock:
                self._stepping = 0

    def _voice(self, profile: Profile, mappings: dict[str, Mapping]) -> NaturalVoice:
        return NaturalVoice(profile, mappings, self._base_voices)

    def _stream(self, voice: NaturalVoice, order: SpeechOrder) -> Stream:
        return Stream(
            self._speaker, self._network, voice, order, self._run, self._ahead, self._scratch
        )

    def _on_prepare(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        """What the first request of a voice would have to find out: its base voices and how they
        are bent.
        """
        if question["voice"] not in self._voices:
            if not body:
                return {"need": question["voice"]}, b""
            self._on_voice(question, body)
        for language in styles.LANGUAGES:
            self._voices[question["voice"]].bend(language)
        return {}, b""

    def _on_warm(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        """Speak once, and tell the seconds of work per second of sound."""
        base = next(v for v in self._base_voices if v.language == "zh").base
        stream = self._stream(
            self._voice(neutral(base)[0], {}), SpeechOrder((WARM_TEXT["zh"],), "zh", 1.0, 0, "")
        )
        began_s, heard_s, is_last = time.process_time(), 0.0, False
        while not is_last:
            sound, _, is_last, _ = stream.step()
            heard_s += len(sound) / RATE_HZ
        return {"rtf": (time.process_time() - began_s) / heard_s}, b""


def main() -> None:
    weights = Path(next(a.partition("=")[2] for a in sys.argv if a.startswith("--weights=")))

    def make(library: str, bells: list[socket.socket]) -> list[NaturalWorker]:
        speaker, network, base_voices = EspeakLibrary(library), Network(weights), styles.read()
        with suppress(AttributeError, OSError, TypeError):  # what loading needed; glibc only
            ctypes.CDLL(None).malloc_trim(0)
        return [NaturalWorker(speaker, network, base_voices, bell) for bell in bells]

    run(make)


if __name__ == "__main__":
    main()
