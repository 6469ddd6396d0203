"""A worker process: answers one question at a time over its socket and ends when the parent does.

`--encode` makes the one that listens to references, at low priority; the others speak. The program
is the same.
"""

from __future__ import annotations

import dataclasses
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from ...errors import EngineFault, KaikouError
from ...frames import Closed, receive, send
from .base_voices import STOCK, analyse, as_float, base_voice
from .library import EspeakLibrary
from .mel_bands import SOURCE_HZ
from .prompt_file import pack, unpack
from .speech_stream import SpeechOrder, Steps, Stream, Voice
from .text_plan import plan
from .vocoder import HOP, Synthesizer
from .voice_mapping import BASE_WPM, Base, Mapping, Profile, map_voice, neutral

MAX_VOICES = 64
MAX_TRANSCRIPT = 400
WARM_TEXT = {"zh": "你好，我准备好了。", "en": "Hello, I am ready to speak."}
NICE = 5
# however slow the machine: who asks takes a worker that is silent for long for one that hangs
LONGEST_STEP_S = 1.0


class Worker:
    """State: voices by fingerprint (least recently used go first) and open streams by number.

    `bell`: rings when somebody waits for this worker.
    """

    def __init__(self, speaker: EspeakLibrary, bell: socket.socket | None = None):
        self._speaker, self._bell = speaker, bell
        if bell is not None:
            bell.setblocking(False)
        self._voices: OrderedDict[str, Voice] = OrderedDict()
        self._streams: dict[int, Steps] = {}
        self._bases: dict[str, tuple[Base, np.ndarray, np.ndarray]] = {}

    def answer(self, question: dict, body: bytes) -> tuple[dict, bytes | memoryview]:
        for number in question.get("drop", ()):
            self._end(number)
        for name in question.get("forget", ()):
            self._voices.pop(name, None)
        return getattr(self, "_on_" + question["op"])(question, body)

    def _on_drop(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        return {}, b""

    def _on_count(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        n_spoken = self._speaker.spoken_samples
        return {
            "streams": len(self._streams),
            "voices": len(self._voices),
            "spoken_samples": n_spoken,
            "peak_kib": peak_kib,
        }, b""

    def _on_voice(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        self._voices[question["voice"]] = self._voice(*unpack(body))
        while len(self._voices) > MAX_VOICES:
            self._voices.popitem(last=False)
        return {}, b""

    def _on_step(self, question: dict, body: bytes) -> tuple[dict, bytes | memoryview]:
        number, order, until = (
            question["stream"],
            question.get("open"),
            time.monotonic() + LONGEST_STEP_S,
        )
        if order is not None:
            name = question["voice"]
            if name not in self._voices:
                return {"need": name}, b""
            self._voices.move_to_end(name)
            self._streams[number] = self._stream(
                self._voices[name], SpeechOrder(**{**order, "segments": tuple(order["segments"])})
            )
        stream = self._streams.get(number)
        if stream is None:
            raise EngineFault()
        try:
            samples, segment, last, timings = stream.step(
                question.get("most", 0), lambda: time.monotonic() > until or self._is_called()
            )
        except BaseException:
            self._end(number)
            raise
        if last:
            self._end(number)
        return {"segment": segment, "last": last, "timings": timings}, np.ascontiguousarray(
            samples, dtype=np.float32
        ).data

    def _voice(self, profile: Profile, mappings: dict[str, Mapping]) -> Voice:
        return Voice(profile, mappings)

    def _stream(self, voice: Voice, order: SpeechOrder) -> Steps:
        return Stream(self._speaker, voice, order)

    def _is_called(self) -> bool:
        """A bell that rang before anything was done costs one block cut short, no more."""
        try:
            return self._bell is not None and bool(self._bell.recv(64))
        except BlockingIOError:
            return False

    def _end(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.close()

    def _on_warm(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        """Load the languages, speak once in each, and tell the seconds of work per second of
        sound.
        """
        for language, text in STOCK.items():
            self._speaker.say(
                language, BASE_WPM, text, 1
            )  # the first use of a language reads its dictionary
        work = sound_s = 0.0
        for language, text in WARM_TEXT.items():
            base = self._base(language)
            profile, mapping = neutral(base[0])
            for measured in (False, True):
                stream = Stream(
                    self._speaker,
                    Voice(profile, {language: mapping}),
                    SpeechOrder((text,), language, 1.0, 0, ""),
                )
                started, last = time.process_time(), False
                while not last:
                    samples, _, last, _ = stream.step()
                    sound_s += len(samples) / 24000 * measured
                work += (time.process_time() - started) * measured
        return {"rtf": work / sound_s}, b""

    def _base(self, language: str) -> tuple[Base, np.ndarray, np.ndarray]:
        if language not in self._bases:
            self._bases[language] = base_voice(self._speaker, language)
        return self._bases[language]

    def _on_stock(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        """Learn the base voice of every language, before the first reference comes."""
        for language in STOCK:
            self._base(language)
        return {}, b""

    def _on_encode(self, question: dict, body: bytes) -> tuple[dict, bytes]:
        from .voice_profile import listen

        profile = listen(np.frombuffer(body, np.float32), question["rate"])
        tempo = self._tempo(profile, question["transcript"], question["language"])
        mappings = {}
        for language in STOCK:
            base, f0, log_power = self._base(language)
            mapping = map_voice(profile, base, tempo)
            mappings[language] = dataclasses.replace(
                mapping, gain=gain_of(profile, mapping, f0, log_power)
            )
        return {"notes": list(profile.notes)}, pack(profile, mappings)

    def _tempo(self, profile: Profile, transcript: str, language: str) -> float | None:
        """How much faster than the base voice the reference says its transcript; None when unknown
        or when the text is not what was said.
        """
        utterances = plan(transcript, language or "auto")
        if not utterances or len(transcript) > MAX_TRANSCRIPT:
            return None
        own_s = sum(
            active_s(as_float(self._speaker.say(u.tag, BASE_WPM, u.text).samples))
            for u in utterances
        )
        tempo = own_s / profile.active_s
        return tempo if 0.6 < tempo < 1.6 else None


def active_s(pcm: np.ndarray) -> float:
    """Seconds of sound within 30 dB of the loud part, 5 ms frames; float32 at 22050 Hz."""
    power = np.mean(pcm[: len(pcm) // 110 * 110].reshape(-1, 110) ** 2, axis=1)
    return (
        float(np.count_nonzero(power > np.percentile(power, 95) * 1e-3)) * 110 / SOURCE_HZ
        if len(power)
        else 0.0
    )


def gain_of(profile: Profile, mapping: Mapping, f0: np.ndarray, log_power: np.ndarray) -> float:
    """Factor that brings the mapped stock text to the loudness of the reference, both over active
    frames.
    """
    converter = Voice(profile, {"en": mapping}).converter("en")
    n = len(f0) * HOP
    out = Synthesizer(profile.breathiness, np.random.SeedSequence(1)).render(
        converter.frames(log_power, f0), converter.pitch(f0), f0 > 0, 0, 0, n
    )
    power = np.mean(out[: n // 480 * 480].reshape(-1, 480) ** 2, axis=1)
    active = power > np.percentile(power, 95) * 1e-3
    return profile.rms / math.sqrt(float(power[active].mean()) + 1e-12)


def serve(sock: socket.socket, worker: Worker) -> None:
    source = sock.makefile("rb")
    while True:
        try:
            question, body = receive(source.read)
        except Closed:
            return
        try:
            header, answer = worker.answer(question, body)
        except KaikouError as e:
            header, answer = {"error": e.to_dict()}, b""
        except Exception as e:
            print(
                f"built-in voice: {question.get('op')} failed: {e!r}", file=sys.stderr, flush=True
            )
            header, answer = {"error": EngineFault().to_dict()}, b""
        try:
            send(sock.sendall, header, answer)
        except Closed:
            return


def run(make: Callable[[str, list[socket.socket]], list[Worker]]) -> None:
    """The program of a worker process: a thread for each lane that it is given. make: (system
    library, bells) -> a worker for each.
    """
    # Ctrl+C reaches the whole group; the parent decides, and its end is seen as the end of the
    # socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = [a.partition("=")[::2] for a in sys.argv[1:]]
    lanes = [
        [socket.socket(fileno=int(fd)) for fd in fds.split(",")]
        for name, fds in options
        if name == "--lane"
    ]
    try:
        workers = make(dict(options).get("--library", ""), [bell for _, bell in lanes])
    except KaikouError as e:
        for sock, _ in lanes:
            with suppress(Closed):
                send(sock.sendall, {"error": e.to_dict()})
        return
    threads = []
    for (sock, _), worker in zip(lanes, workers, strict=True):
        with suppress(Closed):
            send(sock.sendall, {"ready": True})
        threads.append(threading.Thread(target=serve, args=(sock, worker)))
        threads[-1].start()
    for thread in threads:  # pools of threads take no work once the main one is over
        thread.join()


def main() -> None:
    if "--encode" in sys.argv:
        os.nice(NICE)
    run(lambda library, bells: [Worker(EspeakLibrary(library), bell) for bell in bells])


if __name__ == "__main__":
    main()

__all__ = ["Worker", "analyse", "as_float", "gain_of", "run", "serve"]
