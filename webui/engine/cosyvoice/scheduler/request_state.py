"""Everything one request remembers, and the iterator its reader holds.

The two stages work on it; nothing of it is kept elsewhere.

Ids run ahead of the sound by one hop, finished sound ahead of the reader by one chunk: whoever
reads slowly slows only itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from types import MappingProxyType

import numpy as np
import torch

from ....errors import Cancelled, KaikouError
from ....types import Chunk, SpeechRequest
from ..flow.interface import FlowRequest
from ..frontend.prompt_cache import CachedPrompt
from ..llm.token_sources import TokenSource
from ..vocoder.interface import WaveStream
from .chunk_schedule import ChunkSchedule, LatencyProfile
from .scheduler import Scheduler, as_engine_error

SILENCE_S = 0.1  # what a segment gives for which the model found nothing to say


class SegmentState:
    """ids in at one end, sound out at the other. All but `source` is the audio worker's."""

    def __init__(self, index: int, source: TokenSource):
        self.index, self.source = index, source
        self.flow: FlowRequest | None = None
        self.vocoder: WaveStream | None = None
        self.hop = self.done = 0  # hops finished; ids that went through the flow
        self.mels: list[torch.Tensor] = []  # of the hop under way
        self.has_sounded = False


class RequestState:
    """One request.

    `chunks()` is its iterator, for one thread; `cancel` may be called from any, `end` with the lock
    held.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        voice: CachedPrompt,
        request: SpeechRequest,
        sources: Sequence[TokenSource],
        hops: ChunkSchedule,
        profile: LatencyProfile,
        rate: int,
    ):
        self.scheduler, self.voice, self.request, self.hops, self.rate = (
            scheduler,
            voice,
            request,
            hops,
            rate,
        )
        self._profile = profile
        self.segments = [
            SegmentState(index, source)
            for index, source in enumerate(sources, request.first_segment)
        ]
        self.sounding = 0  # index of the segment whose sound is made
        self.born_s, self.dry_s = (
            time.monotonic(),
            0.0,
        )  # dry: when its listener has heard everything taken so far
        self.has_ended = False
        self.error: KaikouError | None = None
        self.computed_frames = self.emitted_frames = 0
        self._ready = threading.Condition(scheduler.lock)
        self._chunk: Chunk | None = None
        self._number = self._start = 0
        self._noted: dict[str, float] = {}
        self._cost: dict[str, float] = {}

    # ---- the reader's side -----------------------------------------------------------------------
    def chunks(self) -> Iterator[Chunk]:
        """Each `next` takes the next finished chunk, or waits for it. Closing frees everything."""
        self.scheduler.submit(self)
        try:
            for segment in self.segments:
                segment.source.start(self.fail)
            while True:
                chunk = self._take()
                yield chunk
                if chunk.last:
                    return
        finally:
            # the garbage collector may run this in any thread, even in one that holds the lock
            self.scheduler.leave(self)

    def _take(self) -> Chunk:
        with self.scheduler.lock:
            self._ready.wait_for(lambda: self._chunk is not None or self.error is not None)
            if self.error is not None:
                error, self.error = (
                    self.error,
                    None,
                )  # an error that knows its request by its traceback would keep it alive
                raise error
            chunk, self._chunk = self._chunk, None
            self.dry_s = max(self.dry_s, time.monotonic()) + len(chunk.samples) / self.rate
            if chunk.last:
                self.end(None)
            self.scheduler.wake()
            return chunk

    def cancel(self) -> None:
        self.fail(Cancelled())

    def fail(self, error: Exception) -> None:
        fault = as_engine_error(error)  # may write to the log, which has a lock of its own
        with self.scheduler.lock:
            self.end(fault)

    def end(self, error: KaikouError | None) -> None:
        """Idempotent; the lock is held.

        The reader, if there is one, hears of `error`. A stage at work on it drops what it made.
        """
        if self.has_ended:
            return
        self.has_ended, self.error = True, error
        if self in self.scheduler.speaking:
            self.scheduler.speaking.remove(self)
        for segment in self.segments:
            segment.source.free()
        self.segments, self._chunk = [], None
        self._ready.notify_all()
        self.scheduler.wake()

    # ---- what the stages ask, with the lock held -------------------------------------------------
    @property
    def is_first(self) -> bool:
        """Its first sound is still to be made."""
        return not self._number

    @property
    def is_waited_for(self) -> bool:
        """Its reader has taken all there is."""
        return self._chunk is None

    def due_s(self) -> float:
        """When the next chunk is wanted: the first soon after birth, the others when the listener
        runs dry.
        """
        return self.born_s + self._profile.first_due_s if self.is_first else self.dry_s

    def rank(self) -> tuple[int, float, float]:
        return self.request.priority, self.due_s(), self.born_s

    def next_decode_segment(self) -> tuple[SegmentState | None, int]:
        """The segment whose ids are wanted, and for how many more there is room.

        They end one hop behind what the hop under way needs; the next segment's may come as soon as
        this one's are all there, as many as its first hop needs.
        """
        for ahead, segment in enumerate(self.segments[self.sounding : self.sounding + 2]):
            if not segment.source.is_over:
                limit = self.hops.needed(segment.hop if ahead else segment.hop + 1)
                return segment, max(0, limit - len(segment.source.ids))
        return None, 0

    def can_run_audio(self) -> bool:
        """There is a piece of work for the audio worker."""
        if self.has_ended or not self.is_waited_for or self.sounding == len(self.segments):
            return False
        segment = self.segments[self.sounding]
        return (
            not self.voice.is_ready
            or segment.source.is_over
            or len(segment.source.ids) >= self.needed(segment)
        )

    def needed(self, segment: SegmentState) -> int:
        """Ids that must be known for the segment's next piece."""
        return self.hops.piece_end(segment.hop, segment.done) + self.hops.ahead

    def note(self, stage: str, seconds: float) -> None:
        """Time spent on ids that no sound was made of yet."""
        self._noted[stage] = self._noted.get(stage, 0.0) + seconds

    def begin_hop(self) -> None:
        """What was noted so far belongs to the chunk that is made now."""
        for stage, seconds in self._noted.items():
            self.hop_cost(stage, seconds)
        self._noted = {}

    def hop_cost(self, stage: str, seconds: float) -> None:
        self._cost[stage] = self._cost.get(stage, 0.0) + seconds

    def put(self, wave: np.ndarray, segment: SegmentState, is_over: bool) -> None:
        """A hop's sound is made, and with `is_over` the segment's."""
        is_last = is_over and segment is self.segments[-1]
        if not len(wave) and is_over and (is_last or not segment.has_sounded):
            wave = np.zeros(int(SILENCE_S * self.rate), np.float32)
        if is_over:
            self.sounding += 1
            segment.flow = segment.vocoder = None
        if len(wave):
            segment.has_sounded = True
            cost, self._cost = MappingProxyType(self._cost), {}
            self._chunk = Chunk(
                self._number,
                np.ascontiguousarray(wave, np.float32),
                self._start,
                segment.index,
                is_last,
                cost,
            )
            self._number, self._start = self._number + 1, self._start + len(wave)
            self._ready.notify_all()
