"""Who may sound now, who waits and at which place, who is refused.

Knows numbers and order, not sound.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from ..errors import Busy
from .speech_job import SpeechJob

# how long a job whose turn has come keeps its place before its reader has asked for any sound
CLAIM_S = 3.0


class Bucket:
    """Token bucket: `per_minute` on average, a third of that in one burst."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic):
        self.rate, self.size, self._clock = per_minute / 60, max(1.0, per_minute / 3), clock
        self.level, self._at = self.size, clock()

    def take(self) -> float:
        """0 when allowed, else seconds until the next one is."""
        now = self._clock()
        self.level, self._at = min(self.size, self.level + (now - self._at) * self.rate), now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.rate

    def give_back(self) -> None:
        """What was taken last does not count."""
        self.level = min(self.size, self.level + 1)


class Buckets:
    """One bucket per key, the longest unused forgotten."""

    def __init__(self, per_minute: float, max_keys: int = 4096):
        self._per_minute, self._max, self._buckets, self._lock = (
            per_minute,
            max_keys,
            OrderedDict(),
            threading.Lock(),
        )

    def check(self, key: str) -> None:
        """Raises Busy with the seconds to wait."""
        with self._lock:
            bucket = self._buckets.pop(key, None) or Bucket(self._per_minute)
            self._buckets[key] = bucket
            while len(self._buckets) > self._max:
                self._buckets.popitem(last=False)
            wait_s = bucket.take()
        if wait_s:
            s = math.ceil(wait_s)
            raise Busy("rate_limited.requests", retry_after_s=s)

    def give_back(self, key: str) -> None:
        """The last `check` of this key does not count."""
        with self._lock:
            if key in self._buckets:
                self._buckets[key].give_back()


class Admission:
    """`capacity()`: how many streams may be hungry at once.

    `begin(job)` is called, outside the lock, when a job's turn has come.
    """

    def __init__(
        self,
        capacity: Callable[[], int],
        n_hungry: Callable[[], int],
        max_waiting: int,
        max_each: int,
    ):
        self._capacity, self._n_hungry, self._max_waiting, self._max_each = (
            capacity,
            n_hungry,
            max_waiting,
            max_each,
        )
        self._lock = threading.Lock()
        self._line: list[
            tuple[SpeechJob, Callable[[SpeechJob], None]]
        ] = []  # in the order of turns
        self._open: dict[str, int] = {}  # owner -> jobs open or waiting
        self._turns_of: dict[
            str, int
        ] = {}  # owner -> turns had; who comes begins one behind the least served
        self._claims: dict[
            str, tuple[SpeechJob, float]
            # jobs whose turn has come and that nobody sees hungry yet, and until when they count
        ] = {}
        self._timer: threading.Timer | None = None  # while claims are what the line waits for
        self.refused = 0
        self._pace_s = 1.0  # running mean of seconds between two turns

    @property
    def n_waiting(self) -> int:
        return len(self._line)

    @property
    def n_open(self) -> int:
        return sum(self._open.values())

    def enter(self, job: SpeechJob, begin: Callable[[SpeechJob], None]) -> None:
        """Begin at once, or stand in line. Raises Busy when this visitor or the line is full."""
        with self._lock:
            if self._open.get(job.owner, 0) >= self._max_each:
                self.refused += 1
                raise Busy("too_many_streams", max_each=self._max_each, retry_after_s=2)
            must_wait = bool(self._line) or self._n_taken() >= self._capacity()
            if must_wait and len(self._line) >= self._max_waiting:
                self.refused += 1
                s = math.ceil(max(1.0, self._pace_s * len(self._line)))
                raise Busy("busy.line_full", retry_after_s=s)
            self._open[job.owner] = self._open.get(job.owner, 0) + 1
            self._turns_of.setdefault(
                job.owner, max(0, min(self._turns_of.values(), default=0) - 1)
            )
            if must_wait:
                self._line.append((job, begin))
                self._order()
                self._watch_claims()
                return
            self._claim(job)
        self._begin(job, begin)
        self.next()

    def _n_taken(self) -> int:
        """Places: of jobs that are hungry, and of those that were let in just now.

        Without the latter a burst would pass together: a job is
        hungry only once its reader has asked for sound.
        """
        now = time.monotonic()
        for job, until in list(self._claims.values()):
            if now >= until or (job.credit and until < math.inf):
                del self._claims[job.id]
        return self._n_hungry() + len(self._claims)

    def _claim(self, job: SpeechJob) -> None:
        self._turns_of[job.owner] += 1
        self._claims[job.id] = job, math.inf

    def _begin(self, job: SpeechJob, begin: Callable[[SpeechJob], None]) -> None:
        try:
            begin(job)
        finally:
            with self._lock:
                if job.id in self._claims:  # else it is over already
                    self._claims[job.id] = job, time.monotonic() + CLAIM_S

    def _watch_claims(self) -> None:
        """A claim that runs out makes room as quietly as it was made: somebody must look then."""
        ends = [until for _, until in self._claims.values() if until < math.inf]
        if self._line and ends and self._timer is None:
            self._timer = threading.Timer(
                max(0.0, min(ends) - time.monotonic()), self._claims_ran_out
            )
            self._timer.daemon = True
            self._timer.start()
        elif not self._line and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _claims_ran_out(self) -> None:
        with self._lock:
            self._timer = None
        self.next()

    def _order(self) -> None:
        """Visitors take turns, however many streams each has waiting; each one's own go in the
        order of arrival.
        """
        counts, rank = Counter(), {}
        for job, _ in sorted(
            self._line, key=lambda entry: (entry[0].request.priority, entry[0].born_s)
        ):
            rank[job.id] = (
                job.request.priority,
                self._turns_of[job.owner] + counts[job.owner],
                job.born_s,
            )
            counts[job.owner] += 1
        self._line.sort(key=lambda entry: rank[entry[0].id])
        for place, (job, _) in enumerate(self._line, 1):
            job.move("waiting", place)

    def eta_s(self, position: int) -> float:
        return max(1.0, position * self._pace_s)

    def next(self) -> None:
        """Room may have come free: let the head of the line in."""
        while self._line and (next_jobs := self._next_turns()):
            for job, begin in next_jobs:
                self._begin(job, begin)

    def _next_turns(self) -> list[tuple[SpeechJob, Callable[[SpeechJob], None]]]:
        next_jobs = []
        with self._lock:
            room = self._capacity() - self._n_taken()
            while self._line and room > 0:
                job, begin = self._line.pop(0)
                self._claim(job)
                room -= 1
                waited_s = time.monotonic() - job.born_s
                self._pace_s += 0.1 * (waited_s / max(1, job.snapshot().position) - self._pace_s)
                next_jobs.append((job, begin))
                self._order()
            self._watch_claims()
        return next_jobs

    def leave(self, job: SpeechJob) -> bool:
        """Take a waiting job out of the line. True when it was in it."""
        with self._lock:
            for entry in self._line:
                if entry[0] is job:
                    self._line.remove(entry)
                    break
            else:
                return False
            self._order()
            self._watch_claims()
        return True

    def finish(self, job: SpeechJob) -> None:
        with self._lock:
            self._claims.pop(job.id, None)
            n_open = self._open.get(job.owner, 0) - 1
            if n_open > 0:
                self._open[job.owner] = n_open
            else:
                self._open.pop(job.owner, None)
                self._turns_of.pop(job.owner, None)
        self.next()
