"""How many replicas a fleet needs. Knows no Ray, whose controller calls `replicas_wanted`."""

from __future__ import annotations

BUSY_SHARE = 0.7  # of what the replicas carry, above which another one is started


def replicas_wanted(fleet) -> tuple[float, dict]:
    """(replicas, no state), before the fleet's bounds and delays. fleet: Ray Serve's
    AutoscalingContext.

    Two shares decide, the larger one: streams that want sound over what the engines carry at once,
    and open streams over the sockets that replicas open. Of a fast engine, whose listeners seldom
    want sound, the sockets are full first.
    """
    n, means = fleet.current_num_replicas, fleet.aggregated_metrics or {}
    if not n:  # the first ones are on their way
        return fleet.target_num_replicas, {}
    n_wanting, capacity = (sum(means.get(name, {}).values()) for name in ("wanting", "capacity"))
    by_work = n_wanting / (BUSY_SHARE * capacity) if capacity else 0.0
    by_sockets = fleet.total_num_requests / (n * fleet.config.get_target_ongoing_requests())
    return n * max(by_work, by_sockets), {}
