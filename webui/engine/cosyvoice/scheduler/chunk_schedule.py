"""How the engine shares its time: three named ways to weigh the first sound against the whole, and
how many ids each piece of sound needs.

Knows numbers only. A profile is one for all requests of an engine: what a request sounds like must
not depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import NotReady
from ..flow.dims import LOOKAHEAD_IDS

NEVER_LATE = float("-inf")


@dataclass(frozen=True)
class LatencyProfile:
    """blocks: of 25 ids in hop 0, 1, 2 ..., the last for all further ones. company_s: how long a
    step of the language model waits for rows
    that will soon have room, never when there is one request only. first_due_s: after its birth a
    first sound is this urgent, beside listeners who run dry; -inf: before all of them.
    is_first_alone: while a first sound is waited for, streams whose listeners have a second in hand
    step aside.
    joins: openings read between two steps. cpu_rows: pieces of sound made in one call on a CPU: two
      take 0.84 to 0.9 of their time one after
    the other, but a first sound that comes meanwhile waits for both.
    """

    name: str
    blocks: tuple[int, ...]
    batch_wait_s: float
    first_due_s: float
    is_first_alone: bool
    joins: int
    cpu_rows: int


PROFILES = {
    p.name: p
    for p in (
        LatencyProfile("ttfa", (1, 1, 1, 2), 0.0, NEVER_LATE, True, 8, 1),
        LatencyProfile("balanced", (1, 1, 2), 0.001, 0.05, False, 2, 1),
        LatencyProfile("throughput", (1, 2, 4), 0.005, 0.5, False, 1, 2),
    )
}


def latency_profile(name: str) -> LatencyProfile:
    """Raises NotReady for a name that is none."""
    if name not in PROFILES:
        raise NotReady("no_profile.latency", name=name, profiles=PROFILES)
    return PROFILES[name]


@dataclass(frozen=True)
class ChunkSchedule:
    """first: ids of the first hop, `grid` or fewer. grid: ids of a block. blocks: as in a profile.
    whole: a hop goes through the flow in one
    piece; else block by block, so that others get their turn between (on one core a longer piece
    gains nothing; on two, where each computes a guidance row, two blocks at once take 0.85 of the
    time, four 0.7). ahead: ids behind a piece that it looks at.
    """

    first: int
    grid: int
    blocks: tuple[int, ...]
    is_whole: bool
    ahead: int = LOOKAHEAD_IDS

    def end(self, hop: int) -> int:
        """Ids that are sound when hop number `hop` is over, counted from the first generated
        one.
        """
        count = hop + (
            self.first == self.grid
        )  # a shorter first hop is filled up to the grid by the next
        if not count:
            return self.first
        more = max(0, count - len(self.blocks))
        return self.grid * (sum(self.blocks[:count]) + more * self.blocks[-1])

    def needed(self, hop: int) -> int:
        """Ids that must be known for it."""
        return self.end(hop) + self.ahead

    def piece_end(self, hop: int, done: int) -> int:
        """Where the next piece of the flow ends that begins behind `done` ids."""
        return (
            self.end(hop)
            if self.is_whole
            else min(self.end(hop), (done // self.grid + 1) * self.grid)
        )
