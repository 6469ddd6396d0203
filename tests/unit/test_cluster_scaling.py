"""How many replicas a fleet wants, from what its replicas say."""

from types import SimpleNamespace

import pytest

from webui.cluster.scaling import BUSY_SHARE, replicas_wanted


def fleet(n, n_wanting, capacity, n_open, streams=8):
    """As Ray Serve's controller sees it: means of each replica, by name."""
    means = {"wanting": n_wanting, "capacity": capacity}
    return SimpleNamespace(
        current_num_replicas=n,
        target_num_replicas=2,
        aggregated_metrics={k: dict(enumerate(v)) for k, v in means.items() if v},
        total_num_requests=n_open,
        config=SimpleNamespace(get_target_ongoing_requests=lambda: BUSY_SHARE * streams),
    )


@pytest.mark.parametrize(
    ("state", "n"),
    [
        (fleet(1, [0], [8], 0), 0),
        (fleet(1, [5.6], [8], 5.6), 1),
        (fleet(2, [8, 8], [8, 8], 16), 2 / 0.7),
        (fleet(2, [1, 1], [8, 8], 2), 2 / 16 / 0.7 * 2),
        # a slow engine: it carries two, and eight sockets are open
        (fleet(1, [3], [2], 3), 1.5 / 0.7),
        # a fast one: nobody wants sound just now, and all sockets are taken
        (fleet(3, [0, 0, 0], [8, 8, 8], 24), 3 / 0.7),
        # a fleet whose first replicas start
        (fleet(0, [], [], 0), 2),
        # a fleet that has said nothing yet goes by its sockets
        (fleet(1, [], [], 4), 4 / 5.6),
    ],
)
def test_the_fuller_of_engines_and_sockets_decides(state, n):
    n_replicas, memory = replicas_wanted(state)
    assert n_replicas == pytest.approx(n) and memory == {}
