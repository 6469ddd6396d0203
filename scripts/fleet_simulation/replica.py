"""One simulated replica: lanes that step streams, earliest deadline first."""

from __future__ import annotations

from collections.abc import Generator

import simpy


class Replica:
    """n_lanes: steps at the same time."""

    def __init__(self, env: simpy.Environment, number: int, n_lanes: int):
        self.env, self.number = env, number
        self.lanes = simpy.PriorityResource(env, n_lanes)
        self.n_open = 0
        self.is_alive = True

    @property
    def n_wanting(self) -> int:
        return self.lanes.count + len(self.lanes.queue)

    def step(self, work_s: float, due_s: float) -> Generator[simpy.Event, object, None]:
        """Waits for its turn, then for its work."""
        with self.lanes.request(priority=due_s) as turn:
            yield turn
            yield self.env.timeout(work_s)
