"""The fleet: who arrives, where streams go, what an autoscaler and failures make of it."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import simpy

from webui.cluster.scaling import BUSY_SHARE, replicas_wanted
from webui.studio.scheduler import HEADROOM

from .replica import Replica

WINDOW = 2  # chunks that are made ahead, webui/cluster/messages.py
UPSCALE_S, DOWNSCALE_S, LOOK_BACK_S = 2.0, 30.0, 4.0  # webui/cluster/serve.py


@dataclass(frozen=True)
class Assumptions:
    """speed, first_s: of a GPU, not measured by this project."""

    speed: float = 12.0  # seconds of sound a second, of all streams of a GPU together
    first_s: float = 0.15  # of work for a first chunk, with what reads the text
    chunk_s: float = 1.0  # of sound in each chunk: 25 speech tokens, as published
    spread: float = 0.2  # of a step's work, log-normal
    n_lanes: int = 1  # steps at the same time; they share the GPU
    shortest_s: float = 5.0
    longest_s: float = 60.0
    burst: float = 1.5  # times the mean, in the middle third
    waiting: int = 32  # in line, for each four GPUs: a studio's
    patience_s: float = 10.0
    least_share: float = 0.5  # of the GPUs that are replicas at the beginning
    start_s: float = 15.0  # of a replica: process and weights (11 s measured on a CPU)
    failures_per_hour: float = 0.05  # of a replica
    told_s: float = 0.05  # until a studio knows of a death; 26-43 ms measured
    hop_ms: float = 2.0  # more than in one process: 3.7 instead of 1.7 ms measured
    window_s: float = 240.0
    warm_s: float = 60.0
    seed: int = 1

    @property
    def sockets(self) -> int:
        """Streams open at once on a replica (--streams): what its scheduler would admit."""
        return max(1, int(HEADROOM * self.speed))

    @property
    def mean_s(self) -> float:
        return (self.shortest_s + self.longest_s) / 2

    def describe(self) -> str:
        return (
            f"Assumed, not measured: a GPU makes {self.speed:g} s of sound a second for all its"
            f" streams, a first sound takes {1000 * self.first_s:g} ms of it and {self.sockets}"
            f" streams are open at once (--streams). A replica starts in {self.start_s:g} s and"
            f" dies {self.failures_per_hour:g} times an hour. Streams of {self.shortest_s:g} to"
            f" {self.longest_s:g} s arrive as a Poisson process, {self.burst:g} times as often in"
            f" the middle third of {self.window_s:g} s; whoever waits {self.patience_s:g} s leaves."
        )


@dataclass
class Outcome:
    firsts_s: list[float] = field(default_factory=list)
    n_arrived: int = 0
    n_refused: int = 0
    n_chunks: int = 0
    n_late: int = 0
    n_moved: int = 0
    n_replicas: int = 0
    open_s: float = 0.0  # streams times seconds
    most_open: int = 0
    seconds: float = 1.0

    @property
    def refused(self) -> float:
        return self.n_refused / max(1, self.n_arrived)

    @property
    def underruns(self) -> float:
        return self.n_late / max(1, self.n_chunks)

    def first_ms(self, q: float) -> float:
        return 1000 * float(np.quantile(self.firsts_s, q)) if self.firsts_s else math.inf

    def is_good(self, limit_ms: float) -> bool:
        in_time = self.first_ms(0.95) < limit_ms
        return in_time and self.refused < 0.01 and self.underruns < 0.001

    def row(self, n_gpus: int) -> str:
        return (
            f"| {n_gpus:,} | {self.open_s / self.seconds:,.0f} / {self.most_open:,} |"
            f" {self.n_replicas:,} | {self.first_ms(0.5):.0f} / {self.first_ms(0.95):.0f} |"
            f" {self.refused:.2%} | {self.underruns:.3%} | {self.n_moved:,} |"
        )


def simulate(assumed: Assumptions, n_gpus: int, load: float) -> Outcome:
    """load: mean arrivals times their length, over what all GPUs make together."""
    fleet = Fleet(assumed, n_gpus, load * n_gpus * assumed.speed / assumed.mean_s)
    fleet.env.run(assumed.warm_s + assumed.window_s)
    return fleet.outcome


class Fleet:
    """per_s: mean arrivals a second."""

    def __init__(self, assumed: Assumptions, n_gpus: int, per_s: float):
        self.assumed, self.n_gpus, self.per_s = assumed, n_gpus, per_s
        self.env, self.random = simpy.Environment(), random.Random(assumed.seed)
        self.outcome = Outcome(seconds=assumed.window_s)
        self._replicas: dict[int, Replica] = {}
        self._by_open: list[dict[int, Replica]] = [{} for _ in range(assumed.sockets + 1)]
        self._line: list[simpy.Event] = []
        self._n_made = self._n_open = self._n_starting = 0
        self._means: list[SimpleNamespace] = []
        for _ in range(max(1, math.ceil(assumed.least_share * n_gpus))):
            self._add()
        for process in (self._arrivals(), self._autoscaler()):
            self.env.process(process)

    # ---- replicas --------------------------------------------------------------------------------
    def _add(self) -> None:
        replica = Replica(self.env, self._n_made, self.assumed.n_lanes)
        self._n_made += 1
        self._replicas[replica.number] = self._by_open[0][replica.number] = replica
        if self.assumed.failures_per_hour:
            self.env.process(self._die(replica))
        for _ in range(self.assumed.sockets):
            self._next_in_line()

    def _die(self, replica: Replica) -> Generator:
        yield self.env.timeout(self.random.expovariate(self.assumed.failures_per_hour / 3600))
        replica.is_alive = False
        if replica.number in self._replicas:
            self._take_out(replica)
            self._n_starting += 1
            yield from self._start()

    def _take_out(self, replica: Replica) -> None:
        """No new streams for it."""
        del self._replicas[replica.number]
        del self._by_open[replica.n_open][replica.number]

    def _start(self) -> Generator:
        yield self.env.timeout(self.assumed.start_s)
        self._n_starting -= 1
        self._add()

    def _count(self, replica: Replica, more: int) -> None:
        if replica.number in self._replicas:
            del self._by_open[replica.n_open][replica.number]
            self._by_open[replica.n_open + more][replica.number] = replica
        replica.n_open += more

    def _least_busy(self) -> Replica | None:
        """leastconn; None when all sockets are taken."""
        for n_open in range(self.assumed.sockets):
            if self._by_open[n_open]:
                return next(iter(self._by_open[n_open].values()))
        return None

    # ---- streams ---------------------------------------------------------------------------------
    def _arrivals(self) -> Generator:
        a = self.assumed
        usual = self.per_s * 3 / (2 + a.burst)  # so that the mean is per_s
        while True:
            third = (self.env.now - a.warm_s) / a.window_s * 3
            rate = usual * (a.burst if 1 <= third < 2 else 1)
            yield self.env.timeout(self.random.expovariate(rate))
            self.env.process(self._stream(self.random.uniform(a.shortest_s, a.longest_s)))

    def _stream(self, length_s: float) -> Generator:
        began_s, is_counted = self.env.now, self.env.now >= self.assumed.warm_s
        self.outcome.n_arrived += is_counted
        replica = self._least_busy()
        if replica is None:
            replica = yield from self._wait_in_line()
            if replica is None:
                self.outcome.n_refused += is_counted
                return
        self._open(replica, 1)
        made_s, dry_s = 0.0, math.inf
        while made_s < length_s:
            if not replica.is_alive:  # another one goes on, from the last whole chunk
                self._open(replica, -1)
                self.outcome.n_moved += is_counted
                yield self.env.timeout(self.assumed.told_s)
                while (replica := self._least_busy()) is None:
                    yield self.env.timeout(self.assumed.told_s)
                self._open(replica, 1)
            is_first = not made_s
            due_s = began_s if is_first else dry_s
            yield from replica.step(self._work_s(is_first), due_s)
            if not replica.is_alive:
                continue  # what it made is lost with it
            if is_first:
                dry_s = self.env.now
                if is_counted:
                    self.outcome.firsts_s.append(dry_s - began_s + self.assumed.hop_ms / 1000)
            elif is_counted:
                self.outcome.n_chunks += 1
                self.outcome.n_late += self.env.now > dry_s
            sound_s = min(self.assumed.chunk_s, length_s - made_s)
            made_s, dry_s = made_s + sound_s, max(dry_s, self.env.now) + sound_s
            ahead_s = dry_s - self.env.now - WINDOW * self.assumed.chunk_s
            if ahead_s > 0:
                yield self.env.timeout(ahead_s)
        yield self.env.timeout(max(0.0, dry_s - self.env.now))
        self._open(replica, -1)
        self._next_in_line()

    def _open(self, replica: Replica, more: int) -> None:
        self._count(replica, more)
        self._n_open += more

    def _work_s(self, is_first: bool) -> float:
        """Lane seconds of a step: all lanes share the GPU."""
        a = self.assumed
        mean_s = a.first_s if is_first else a.chunk_s * a.n_lanes / a.speed
        return mean_s * self.random.lognormvariate(-(a.spread**2) / 2, a.spread)

    def _wait_in_line(self) -> Generator[simpy.Event, object, Replica | None]:
        if len(self._line) >= self.assumed.waiting * math.ceil(self.n_gpus / 4):
            return None
        turn = self.env.event()
        self._line.append(turn)
        yield turn | self.env.timeout(self.assumed.patience_s)
        if turn in self._line:
            self._line.remove(turn)
            return None
        return self._least_busy()

    def _next_in_line(self) -> None:
        if self._line and self._least_busy() is not None:
            self._line.pop(0).succeed()

    # ---- the autoscaler --------------------------------------------------------------------------
    def _autoscaler(self) -> Generator:
        """Once a second, by the program's own rule and delays."""
        since_s = {1: None, -1: None}  # since when more, or fewer, are wanted
        while True:
            yield self.env.timeout(1.0)
            self._measure()
            n_now = len(self._replicas) + self._n_starting
            n_needed = min(max(math.ceil(self._replicas_needed()), 1), self.n_gpus)
            for way, delay_s in ((1, UPSCALE_S), (-1, DOWNSCALE_S)):
                is_wanted = (n_needed - n_now) * way > 0
                since_s[way] = (since_s[way] or self.env.now) if is_wanted else None
                if not is_wanted or self.env.now - since_s[way] < delay_s:
                    continue
                since_s[way] = None
                if way > 0:
                    self._n_starting += n_needed - n_now
                    for _ in range(n_needed - n_now):
                        self.env.process(self._start())
                else:
                    self._drain(n_now - n_needed)

    def _measure(self) -> None:
        now = self.env.now
        replicas = self._replicas.values()
        self._means.append(
            SimpleNamespace(
                wanting=sum(r.n_wanting for r in replicas),
                open=sum(r.n_open for r in replicas) + len(self._line),
            )
        )
        del self._means[: -int(LOOK_BACK_S)]
        if now >= self.assumed.warm_s:
            self.outcome.open_s += self._n_open
            self.outcome.most_open = max(self.outcome.most_open, self._n_open)
            self.outcome.n_replicas = max(self.outcome.n_replicas, len(self._replicas))

    def _replicas_needed(self) -> float:
        n, count = len(self._replicas), len(self._means)
        if not n:
            return 1
        carried = n * self.assumed.speed * BUSY_SHARE  # Scheduler.capacity, with its headroom
        context = SimpleNamespace(
            current_num_replicas=n,
            aggregated_metrics={
                "wanting": {0: sum(m.wanting for m in self._means) / count},
                "capacity": {0: carried},
            },
            total_num_requests=sum(m.open for m in self._means) / count,
            config=SimpleNamespace(
                get_target_ongoing_requests=lambda: BUSY_SHARE * self.assumed.sockets
            ),
        )
        return replicas_wanted(context)[0]

    def _drain(self, n: int) -> None:
        """Those with the fewest streams leave, and end these first."""
        for replica in sorted(self._replicas.values(), key=lambda r: r.n_open)[:n]:
            self._take_out(replica)
