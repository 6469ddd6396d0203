"""Steps streams on one engine: a thread per lane, first chunks first, then whoever's listener runs
dry soonest (earliest deadline first).

A step is one `next()` of a stream. A step that takes longer than `stall_s` fails its job with
EngineStalled and the lane gets a new thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from ..engine.base import Engine
from ..errors import Cancelled, EngineFault, EngineStalled, KaikouError
from ..types import Chunk, Prompt
from .speech_job import UNLIMITED, SpeechJob
from .text_source import TextSourceStream

log = logging.getLogger(__name__)
LATE_COSTS, IN_TIME_GIVES, MIN_EASE = 0.8, 0.005, 0.02
ALONE = -1  # the lane of a stream that has a thread of its own
# share of what the engine can that streams may claim; the rest is first chunks, the page and the
# system
HEADROOM = 0.7


class Slot:
    """A job's place on an engine: its prompt, its iterator once it began, the lane it is bound
    to.
    """

    def __init__(self, job: SpeechJob, prompt: Prompt, on_end: Callable[[SpeechJob], None]):
        self.job, self.prompt, self.on_end = job, prompt, on_end
        self.lane: int | None = None
        self.stream: Iterator[Chunk] | None = None
        self.step_since_s: float | None = None

    @property
    def has_begun(self) -> bool:
        """The engine has a stream of it, or makes one just now."""
        return self.stream is not None or self.step_since_s is not None

    @property
    def can_step(self) -> bool:
        """Of a stream with a thread of its own: an engine that reads while it speaks may have sound
        ready while it waits for text.
        """
        job = self.job
        return (
            job.is_cancelled
            or job.text_source.is_spent
            or (job.produced < job.credit and job.text_source.can_step)
        )

    @property
    def waits_since_s(self) -> float | None:
        """How long the step under way has waited for the engine, and not for a text to be
        written.
        """
        text_source = self.job.text_source
        if self.step_since_s is None or text_source is None:
            return self.step_since_s
        return None if text_source.is_starved else max(self.step_since_s, text_source.fed_s)


def open_stream(engine: Engine, job: SpeechJob, prompt: Prompt, lane: int) -> Iterator[Chunk]:
    """What speaks `job`; `lane` is ALONE for a text that the engine reads while it arrives."""
    if job.source is not None:
        return engine.convert(job.request, prompt, job.source.samples, job.source.rate, lane)
    if job.text_source is not None:
        return TextSourceStream(
            engine, job.request, prompt, job.text_source, None if lane == ALONE else lane
        )
    return engine.stream(job.request, prompt, lane)


class Scheduler:
    """open_stream: makes a job's stream; a replica of a fleet has jobs of its own kind."""

    def __init__(
        self,
        engine: Engine,
        stall_s: float,
        open_stream: Callable[..., Iterator[Chunk]] = open_stream,
    ):
        self.engine, self._stall_s, self._open_stream = engine, stall_s, open_stream
        about = engine.describe()
        self.n_lanes = about.lanes
        self.speed = (
            about.speed
        )  # of lanes that share one device, together; 0 where each lane has its own
        # seconds of lane time per second of sound; a running measure where each lane has its own
        # device
        self.rtf = about.rtf
        # shrinks with every chunk that comes after its listener fell silent, recovers with every
        # one in time
        self.load_factor = 1.0
        # nobody is woken by a change that gives him nothing to do: with many lanes that is most
        self._lock = lock = threading.RLock()
        self._change, self._watched = threading.Condition(lock), threading.Condition(lock)
        self._idle: dict[int, threading.Condition] = {}  # lanes that wait, by number
        self._slots: list[Slot] = []
        self._closed = False
        self._generation = [0] * self.n_lanes
        for lane in range(self.n_lanes):
            self._spawn(lane)
        threading.Thread(target=self._watch, name="lane-watch", daemon=True).start()

    def _spawn(self, lane: int) -> None:
        threading.Thread(
            target=self._run, args=(lane, self._generation[lane]), name=f"lane-{lane}", daemon=True
        ).start()

    def add(self, job: SpeechJob, prompt: Prompt, on_end: Callable[[SpeechJob], None]) -> None:
        slot = Slot(job, prompt, on_end)
        if (
            job.text_source is not None and self.engine.describe().text_in
        ):  # a step may wait for the writer: it would hold a lane up
            slot.lane = ALONE
            threading.Thread(
                target=self._run_alone, args=(slot,), name="lane-text", daemon=True
            ).start()
        with self._change:
            self._slots.append(slot)
            self._preempt_background()
            self._wake()
            self._watched.notify()

    def poke(self) -> None:
        """Credit or a cancel came in."""
        with self._change:
            self._preempt_background()
            self._wake()

    def _wake(self) -> None:
        """Wake the lanes that may have something to step now, and streams with threads of their
        own.
        """
        if self._idle:
            carried = Counter(s.lane for s in self._slots)
            idle = dict(self._idle)
            for slot in self._ready():
                lane = slot.lane
                if lane is None:
                    lane = min(idle, key=lambda n: carried[n], default=None)
                    carried[lane] += 1
                if condition := idle.pop(lane, None):
                    condition.notify()
        if any(s.lane == ALONE for s in self._slots):
            self._change.notify_all()

    def _preempt_background(self) -> None:
        """Of steps in the background, which some engines make long, on lanes that a listener waits
        for.
        """
        for slot in self._slots if hasattr(self.engine, "make_way") else ():
            if slot.step_since_s is not None and slot.job.is_background and slot.lane != ALONE:
                waiting = self._pick(slot.lane)
                if waiting is not None and not waiting.job.is_background:
                    self.engine.make_way(slot.lane)

    @property
    def capacity(self) -> int:
        """How many streams may be hungry at once: one at least, or two where they have lanes of
        their own; and none beside those that are, where all places are taken.
        """
        if self.speed:
            count = max(1, int(HEADROOM * self.load_factor * self.speed))
        else:
            # what is open takes its share, a slower voice of the engine more of it; the rest is for
            # streams at the usual rate
            rtf = max(self.rtf, 1e-4)
            open_rtfs = [max(s.job.own_rtf, rtf) for s in self._wanting_audio()]
            spare_load = HEADROOM * self.load_factor * self.n_lanes - sum(open_rtfs)
            count = max(2, len(open_rtfs) + int(spare_load / rtf))
        return min(count, self.n_wanting_audio + self.n_free)

    @property
    def max_open(self) -> float:
        """Of a fleet this changes with its machines."""
        return self.engine.describe().streams or math.inf

    @property
    def n_free(self) -> float:
        """Places for streams that a listener's may still take."""
        return max(
            0, self.max_open - sum(s.has_begun or not s.job.is_background for s in self._slots)
        )

    @property
    def _n_begun(self) -> int:
        return sum(s.has_begun for s in self._slots)

    def _has_place(self, slot: Slot, n_begun: int) -> bool:
        """An engine may have places for so many streams only.

        One of them is never for work in the background, where there are several.
        """
        if slot.has_begun or slot.job.is_cancelled:
            return True
        is_spared = slot.job.is_background and self.max_open > 1
        return n_begun + is_spared < self.max_open

    @property
    def expected_rtf(self) -> float:
        """Of one more stream beside those that are open."""
        share = (self.n_wanting_audio + 1) / self.n_lanes
        return (
            max(self.rtf, (self.n_wanting_audio + 1) / self.speed)
            if self.speed
            else self.rtf * max(1.0, share)
        )

    @property
    def n_wanting_audio(self) -> int:
        """Streams that somebody listens to; background work takes nobody's place."""
        return len(self._wanting_audio())

    def _wanting_audio(self) -> list[Slot]:
        return [s for s in self._slots if s.job.wants_audio and not s.job.is_background]

    @property
    def n_open(self) -> int:
        return len(self._slots)

    def close(self) -> None:
        with self._change:
            self._closed = True
            for has_work in self._idle.values():
                has_work.notify()
            self._change.notify_all()
            self._watched.notify()

    def _pick(self, lane: int) -> Slot | None:
        """New streams go to the free lane that carries fewest: where lanes wait for one device, a
        stream beside another on its lane would wait twice.
        """
        carried = [sum(s.lane == n for s in self._slots) for n in range(self.n_lanes)]
        stepping = {s.lane for s in self._slots if s.step_since_s is not None}
        takes_new = carried[lane] == min(
            count for n, count in enumerate(carried) if n == lane or n not in stepping
        )
        own_lanes = (lane, None) if takes_new else (lane,)
        ready = [s for s in self._ready() if s.lane in own_lanes]
        return min(
            ready,
            key=lambda s: (
                not s.job.is_cancelled,
                s.job.request.priority,
                s.job.due_s(),
                s.job.born_s,
            ),
            default=None,
        )

    def _ready(self) -> list[Slot]:
        """Streams that some lane may step now."""
        waits = bool(
            self.speed and self.n_wanting_audio
        )  # on a device that all lanes share, background work would slow whoever is listened to
        n_begun = self._n_begun
        return [
            s
            for s in self._slots
            if s.step_since_s is None
            and s.lane != ALONE
            and self._has_place(s, n_begun)
            and (s.job.is_cancelled or (s.job.wants_audio and not (waits and s.job.is_background)))
        ]

    def _run(self, lane: int, generation: int) -> None:
        has_work = threading.Condition(self._lock)
        while True:
            with self._lock:
                while (
                    (slot := self._pick(lane)) is None
                    and not self._closed
                    and generation == self._generation[lane]
                ):
                    self._idle[lane] = has_work
                    has_work.wait()
                if generation != self._generation[lane]:
                    return
                self._idle.pop(lane, None)
                if slot is None:
                    return
                slot.lane = lane
                slot.step_since_s = time.monotonic()
                self._wake()  # what this lane has taken may be another's turn now
            self._step(slot)

    def _run_alone(self, slot: Slot) -> None:
        while True:
            with self._change:
                self._change.wait_for(
                    lambda: (
                        self._closed
                        or slot.job.is_over
                        or (
                            slot in self._slots
                            and slot.can_step
                            and self._has_place(slot, self._n_begun)
                        )
                    )
                )
                if self._closed or slot.job.is_over:
                    return
                slot.step_since_s = time.monotonic()
            self._step(slot)

    def _step(self, slot: Slot) -> None:
        began, job = time.monotonic(), slot.job
        try:
            if job.is_cancelled:
                raise Cancelled()
            if slot.stream is None:
                slot.stream = self._open_stream(self.engine, job, slot.prompt, slot.lane)
            if hasattr(slot.stream, "slack_s"):  # whoever makes it has other listeners too
                slot.stream.slack_s = job.due_s() - began
            chunk = next(slot.stream, None)
            if job.is_over:
                self._end(slot)  # the watch has given up on this step
                return
            if chunk is None:
                raise EngineFault()  # a stream that ends without a last chunk
            took = time.monotonic() - began
            self._judge(job, began + took)
            job.accept(chunk, took)
            if not self.speed and not job.own_rtf:
                self.rtf += 0.02 * (took / max(len(chunk.samples) / job.rate, 0.02) - self.rtf)
            if chunk.last:
                job.move("saving")
                self._end(slot)
        except KaikouError as error:
            job.fail(error)
            self._end(slot)
        except Exception:  # an engine's own bug fails its request, not the lane
            log.exception("job %s: step failed", job.id)
            job.fail(EngineFault())
            self._end(slot)
        with self._change:
            slot.step_since_s = None
            self._wake()

    def _judge(self, job: SpeechJob, now_s: float) -> None:
        """Late chunks mean that more was let in than this machine carries just now."""
        if (
            job.first_chunk_s is not None and job.credit < UNLIMITED and not job.is_background
        ):  # who takes the whole at once does not play it
            self.load_factor = (
                max(MIN_EASE, self.load_factor * LATE_COSTS)
                if now_s > job.due_s()
                else min(1.0, self.load_factor + IN_TIME_GIVES)
            )

    def _end(self, slot: Slot) -> None:
        with self._change:
            if slot not in self._slots:
                return
            self._slots.remove(slot)
        try:
            if slot.stream is not None:
                slot.stream.close()
        except Exception:  # the job's end is known already; the lane must live
            log.exception("job %s: closing its stream failed", slot.job.id)
        slot.on_end(slot.job)

    def _watch(self) -> None:
        """Sleeps while there is no stream, else until the oldest running step would be overdue."""
        with self._watched:
            while not self._closed:
                now = time.monotonic()
                running = [
                    (s, since) for s in self._slots if (since := s.waits_since_s) is not None
                ]
                late = [s for s, since in running if now - since > self._stall_s]
                for slot in late:
                    self._give_up(slot)
                due = min((since for s, since in running if s not in late), default=now)
                self._watched.wait(
                    max(0.01, due + self._stall_s - now + 0.01) if self._slots else None
                )

    def _give_up(self, slot: Slot) -> None:
        log.error("job %s: a step took more than %.0f s", slot.job.id, self._stall_s)
        self._slots.remove(slot)
        self.engine.cancel(slot.job.request.id)
        slot.job.fail(EngineStalled())
        if slot.lane != ALONE:
            self._generation[slot.lane] += 1
            self._spawn(slot.lane)
        threading.Thread(target=slot.on_end, args=(slot.job,), daemon=True).start()
