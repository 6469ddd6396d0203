"""One spoken request on its way from admission to take.

Owns all state of that request; blind to engines and sockets.

One thread produces (`accept`, `finish`), one reader consumes (`pcm`, `snapshot`); only cancel,
credit and counts go back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .. import audio
from ..errors import Cancelled, KaikouError
from ..logs import REQUEST_ID
from ..types import Chunk, SpeechRequest, Voice, model_of
from .continuation import Continuation, continuation_of
from .prompt_refs import PromptLease
from .text_source import TextSource
from .timings import Timings

UNLIMITED = 1 << 62
RESTED_S = 1.0  # at least what a reader still has in hand when it asks for more
FREE_RESUMES = 2  # of a text that was paid for once
# a first chunk is wanted so soon that only a listener who is about to fall silent goes before it
FIRST_DUE_S = 0.05


class Playback:
    """How much of a text was sent to its listener, whichever sockets it came by and however often
    it was spoken for that. Thread-safe.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._n_sent, self._n_free, self._is_given_up = 0, FREE_RESUMES, False

    def reached(self, n_sent: int) -> None:
        """Sample `n_sent` is the first that was not sent yet."""
        with self._lock:
            self._n_sent = max(self._n_sent, n_sent)

    def give_up(self) -> None:
        """The listener wanted no more of it."""
        self._is_given_up = True

    def goes_on(self, start: int) -> bool:
        """A listener who lost the connection goes on at `start`, where that was; true a few times.

        Everything else is another hearing.
        """
        with self._lock:
            is_free = not self._is_given_up and 0 < start <= self._n_sent and self._n_free > 0
            self._n_free -= is_free
            return is_free


@dataclass(frozen=True)
class Snapshot:
    state: str  # waiting, running, saving, done, failed, cancelled
    position: int  # place in the line, 1 = next; 0 when not waiting
    n_samples: int
    marks: tuple[tuple[int, int], ...]  # (segment, first sample)
    error: KaikouError | None
    saved: bool  # the take is on disk
    save_error: KaikouError | None
    rtf: float


@dataclass
class SpeechJob:
    id: str
    request: SpeechRequest
    owner: str
    voice: Voice
    rate: int
    engine: str
    engine_version: str
    tempo: float = 1.0  # what is left of the speed after the engine's own range
    source: audio.Clip | None = None  # of a voice conversion
    text_source: TextSource | None = None  # its text, while that is still arriving
    playback: Playback = field(default_factory=Playback)
    beginning: Continuation | None = None  # of one that goes on
    credit: int = 0  # samples the reader will take so far
    born_s: float = field(default_factory=time.monotonic)
    trace: Timings = field(default_factory=Timings)
    asked_as: str = field(
        default_factory=REQUEST_ID.get
    )  # X-Request-Id of the request that it came by

    def __post_init__(self):
        self._lock = threading.Lock()
        self._pcm = bytearray(self.beginning.pcm if self.beginning else b"")
        self._marks = list(self.beginning.marks) if self.beginning else []
        self.n_begun = self.produced  # samples that were not made for this job
        self._trim = audio.SilenceTrim(self.rate) if not self.n_begun else None
        self._tempo, self._segment = None, -1
        self._state, self._position, self._error = "waiting", 0, None
        self._save_error: KaikouError | None = None
        self._saved = False
        self.is_cancelled = False
        self.notes: list[
            tuple[str, str]
        ] = []  # what the engine cannot do of it, (English, Chinese)
        self.voice_notes: tuple[
            tuple[str, str], ...
        ] = ()  # those that a take keeps, as Take has them
        self.own_rtf = 0.0  # of a voice that is slower than its engine's usual one
        # keeps the engine it began on, and what that has made of the voice
        self.lease: PromptLease | None = None
        self.work_s = 0.0
        self.underruns = 0  # chunks made after a listener who plays at once had run dry
        self.first_chunk_s: float | None = None  # since birth
        self.dry_s = 0.0  # when the listener runs out of sound, on the monotonic clock
        self.made_in_s = 0.0  # from birth to the last sample
        self._on_change: Callable[[], None] | None = None
        self._signalled = False
        self.is_made = False  # the engine has made its last step, and that is counted
        self._is_closed = False

    # ---- the reader's side -----------------------------------------------------------------------
    def listen(self, wake: Callable[[], None] | None) -> None:
        """`wake` is called from other threads, at most once between two `snapshot`s."""
        with self._lock:
            self._on_change, self._signalled = wake, False

    def snapshot(self) -> Snapshot:
        with self._lock:
            self._signalled = False
            n = len(self._pcm) // 2
            n_made = n - self.n_begun
            rtf = self.work_s / (n_made / self.rate) if n_made else 0.0
            return Snapshot(
                self._state,
                self._position,
                n,
                tuple(self._marks),
                self._error.copy() if self._error is not None else None,  # a reader may raise it
                self._saved,
                self._save_error,
                rtf,
            )

    def pcm(self, start: int, stop: int) -> bytes:
        """s16le samples start..stop (indices of samples)."""
        with self._lock, memoryview(self._pcm) as whole:  # copied once
            return bytes(whole[2 * start : 2 * stop])

    @property
    def model(self) -> str:
        """Asks for the voice that speaks it, as `model` of another request."""
        return model_of(self.engine, self.request.voice_engine)

    def segment_marks(self, marks: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """`marks` of a snapshot by the segments of the whole text: while a text arrives they are
        counted by its pieces, of which a segment may have several.
        """
        if self.text_source is None:
            return tuple(marks)
        return tuple((self.text_source.segment_of(piece), start) for piece, start in marks)

    def so_far(self) -> Continuation | None:
        """What another job with the same request can go on from; None where no sentence is
        whole.
        """
        with self._lock:
            first_segment, stop = continuation_of(self._marks)
            if not stop:
                return None
            return Continuation(
                first_segment,
                bytes(memoryview(self._pcm)[: 2 * stop]),
                tuple(self._marks[:-1]),
                (*self.replaces, self.id),
            )

    # ---- the producer's side ---------------------------------------------------------------------
    @property
    def produced(self) -> int:
        return len(self._pcm) // 2

    @property
    def replaces(self) -> tuple[str, ...]:
        """Ids of the takes that it goes on from."""
        return self.beginning.replaces if self.beginning else ()

    @property
    def made_s(self) -> float:
        """Seconds of sound that were made for this job."""
        return (self.produced - self.n_begun) / self.rate

    @property
    def n_chars(self) -> int:
        """Of the text that is spoken for this job."""
        request = self.request
        if not request.first_segment:
            return len(request.text)
        return sum(map(len, request.segments[request.first_segment :]))

    @property
    def wants_audio(self) -> bool:
        """The reader wants more than there is, and there is text for it; or nothing is left but to
        say so.
        """
        text_source = self.text_source
        if text_source is None:
            return self.produced < self.credit
        return text_source.is_spent or (
            self.produced < self.credit and text_source.can_step and not text_source.is_starved
        )

    @property
    def is_background(self) -> bool:
        """Nobody listens: it fills the gaps that listeners leave."""
        return self.request.priority > 0

    @property
    def is_over(self) -> bool:
        return self._state in ("saving", "done", "failed", "cancelled")

    def due_s(self) -> float:
        """When the next chunk is wanted, on the monotonic clock: at once for the first, else when
        the listener runs dry.
        """
        if self.first_chunk_s is None:
            return self.born_s + FIRST_DUE_S
        return self.dry_s

    def grant(self, upto: int) -> bool:
        """The reader takes samples up to `upto`.

        True when that is news. One that had all it wanted still has sound: it is not late.
        """
        if upto <= self.credit:
            return False
        if not self.wants_audio:
            self.dry_s = max(self.dry_s, time.monotonic() + RESTED_S)
        self.credit = upto
        return True

    def text_arrived(self) -> None:
        """Text came that was waited for: it is not the engine that was late."""
        with self._lock:
            self.dry_s = max(self.dry_s, time.monotonic() + RESTED_S)

    def move(self, state: str, position: int = 0) -> None:
        with self._lock:
            if (self._state, self._position) == (state, position):
                return
            self._state, self._position = state, position
        self._wake()

    def accept(self, chunk: Chunk, work_s: float) -> None:
        began = time.perf_counter()
        sound = self._trim.push(chunk.samples) if self._trim is not None else chunk.samples
        rest = self._at_tempo(chunk.segment)
        if self._tempo is not None:
            sound = self._tempo.push(sound)
            if chunk.last:
                sound = np.concatenate([sound, self._tempo.flush()])
        data = audio.to_s16(sound)
        self.trace.engine(chunk.timings)
        self.trace.add("encode", time.perf_counter() - began)
        with self._lock:
            self.work_s += work_s
            now = time.monotonic()
            self._pcm += rest
            if data:
                if not self._marks or self._marks[-1][0] != chunk.segment:
                    self._marks.append((chunk.segment, len(self._pcm) // 2))
                if self.first_chunk_s is None:
                    self.first_chunk_s = now - self.born_s
                    self.trace.note_first_sound()
                elif now > self.dry_s and self.credit < UNLIMITED:
                    self.underruns += 1
                self._pcm += data
                self.dry_s = max(self.dry_s, now) + (len(rest) + len(data)) / 2 / self.rate
            self.made_in_s = now - self.born_s
        self._wake()

    def _at_tempo(self, segment: int) -> bytes:
        """The sound of the segment before, when another one begins: each has its own end, so that
        one can be where a stream goes on.
        """
        if self.tempo == 1.0 or segment == self._segment:
            return b""
        rest = audio.to_s16(self._tempo.flush()) if self._tempo is not None else b""
        self._tempo, self._segment = audio.TimeStretch(self.rate, self.tempo), segment
        return rest

    def settle(self) -> None:
        """No more of its text will be spoken: what there is of it is its text."""
        if self.text_source is not None:
            self.text_source.close()
            self.request = self.text_source.settled(self.request)
            self.voice_notes += tuple(self.text_source.late_notes(self.request))

    def fail(self, error: KaikouError) -> None:
        with self._lock:
            if self.is_over:
                return
            self._error, self._state = (
                error.copy(),
                "cancelled" if isinstance(error, Cancelled) else "failed",
            )
        self._wake()

    def closed(self, by_engine: bool) -> bool:
        """The engine has made its last step, or a reader left.

        True once: when neither has anything to add to the trace.
        """
        with self._lock:
            self.is_made = self.is_made or by_engine
            is_now = self.is_made and self._on_change is None and not self._is_closed
            self._is_closed = self._is_closed or is_now
            return is_now

    def saved(self, error: KaikouError | None, is_kept: bool = True) -> None:
        """is_kept: there is a take of it, when nothing went wrong."""
        with self._lock:
            self._state, self._saved = "done", is_kept and error is None
            self._save_error = error.copy() if error is not None else None
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            wake = None if self._signalled else self._on_change
            self._signalled = self._signalled or wake is not None
        if wake is not None:
            wake()
