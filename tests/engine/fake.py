"""A tone instead of a voice: the smallest engine that keeps every rule of the seam, with faults on
request.

The instruction carries what to do: "rtf=1.3 jitter=0.05 seconds=20 chunk=0.2 first=0.04 fail=3
stall=2 lost=9" (lost: its process, once, and it is back at the second question).
"""

from __future__ import annotations

import random
import threading
import time

import numpy as np

from webui.engine.remote.child_process import engine_lost
from webui.errors import BadInput, Cancelled, EngineFault, NotReady
from webui.messages import Message
from webui.types import Abilities, Chunk, Health, Prompt

RATE = 24000


class FakeEngine:
    def __init__(self, lanes: int = 2, start_s: float = 0.0, version: str = "1", held_by: str = ""):
        self.lanes, self.start_s, self.version, self.held_by = lanes, start_s, version, held_by
        self.stop, self.state = threading.Event(), "starting"
        self.opened = self.finalised = 0
        self.cancelled: set[str] = set()
        self.prompts: dict[
            str, bytes
        ] = {}  # what it remembers of prompts that it spoke with, or made itself ready for
        self.forgotten: list[str] = []
        self.change = threading.Condition()
        self.n_lost = self.n_absent = 0

    def describe(self):
        return Abilities(
            "fake",
            self.version,
            RATE,
            ("zero_shot", "cross_lingual", "instruct", "preset", "convert"),
            ("zh", "en"),
            self.lanes,
            0.5,
            2.0,
            0.001,
            styles=("happy", "sad", "sichuan", "whisper"),
            hears_only=True,
        )

    def start(self):
        self.stop.wait(self.start_s)
        if self.held_by:
            with open(
                self.held_by
            ) as pipe:  # a named pipe: comes back when somebody opens its other end
                pipe.read()
        self.state = "ready"

    def encode(self, samples, rate, transcript, language):
        if not np.isfinite(samples).all() or len(samples) < rate * 0.8:
            raise BadInput(Message("The clip is too short.", "音频太短。"), code="too_short")
        f0 = 100.0 + float(np.abs(samples).mean()) * 1000
        data = np.float32(f0).tobytes()
        return Prompt("fake", self.version, data.hex(), data)

    def stream(self, request, prompt, lane=0):
        self.prepare(prompt)
        return self._steps(request, float(np.frombuffer(prompt.data, np.float32)[0]))

    def convert(self, request, prompt, samples, rate, lane=0):
        from dataclasses import replace

        return self.stream(
            replace(request, instruction=f"seconds={len(samples) / rate}"), prompt, lane
        )

    def _steps(self, request, f0):
        options = dict(w.split("=") for w in request.instruction.split() if "=" in w)
        opt = lambda k, d: float(options.get(k, d))  # noqa: E731
        seconds = opt("seconds", sum(map(len, request.segments or (request.text,))) * 0.15)
        total, done, number, rng = int(seconds * RATE), 0, 0, random.Random(request.seed)
        n_skipped = at_first = 0  # chunks and samples of the segments before the first one
        self.opened += 1
        began = time.monotonic()
        try:
            while done < total:
                if request.id in self.cancelled:
                    raise Cancelled()
                if number == opt("fail", -1):
                    raise EngineFault()
                if number == opt("lost", -1) and not self.n_lost:
                    self.n_lost = self.n_absent = 1
                    raise engine_lost()
                if number == opt("stall", -1):
                    self.stop.wait(3600)
                n = min(
                    total - done,
                    int((opt("first", 0.04) if number == 0 else opt("chunk", 0.2)) * RATE),
                )
                n_parts = len(request.segments or (1,))
                segment = min(n_parts - 1, int(done / total * n_parts))
                if segment < request.first_segment:
                    done, number, n_skipped = done + n, number + 1, n_skipped + 1
                    at_first = done
                    continue
                due = (
                    began
                    + (done - at_first + n) / RATE * opt("rtf", 0)
                    + rng.uniform(-1, 1) * opt("jitter", 0)
                )
                with self.change:
                    self.change.wait_for(
                        lambda: self.stop.is_set() or request.id in self.cancelled,
                        max(0.0, due - time.monotonic()),
                    )
                if request.id in self.cancelled:
                    raise Cancelled()
                k = np.arange(done, done + n)
                tone = 0.5 * np.cos(2 * np.pi * (f0 + request.seed % 97) * k / RATE)
                yield Chunk(
                    number - n_skipped,
                    tone.astype(np.float32),
                    done - at_first,
                    segment,
                    done + n >= total,
                )
                done, number = done + n, number + 1
        finally:
            self.finalised += 1

    def prepare(self, prompt):
        self.prompts[prompt.fingerprint] = prompt.data

    def forget(self, fingerprint):
        self.forgotten.append(fingerprint)
        self.prompts.pop(fingerprint, None)

    def notes(self, request):
        if self.n_absent:
            self.n_absent = 0
            raise NotReady(Message("It is starting.", "正在启动。"), retry_after_s=1)
        return [("I only hum.", "我只会哼。")] if "sing" in request.instruction else []

    def check(self, request, prompt):
        if "no room" in request.transcript:
            raise BadInput(
                Message("There is no room behind this clip.", "这段参考音频后面没有位置了。"),
                param="input",
                code="too_long_sentence",
            )
        odd = ("The transcript is another clip's.", "文字稿不是这段音频的。")
        return [odd] if "misfit" in request.transcript else []

    def cancel(self, request_id):
        with self.change:
            self.cancelled.add(request_id)
            self.change.notify_all()

    def health(self):
        return Health(self.state)

    def close(self):
        self.stop.set()
        with self.change:
            self.change.notify_all()
        self.state = "broken"
