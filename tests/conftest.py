"""Fixtures shared by all tests: a running studio with the tone engine (one per test run), and the
shared data when it is there.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import nest, serve

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # run in the background by a shell, and so would be all that the tests start and interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
if nest.NEST is not None:
    serve.lay = nest.NEST.hatch
ROOT = Path(__file__).resolve().parent.parent


def thorough_rules() -> dict[str, int]:
    """Of tests/thorough.txt: file or test -> how many of its cases stay in the short suite."""
    lines = (ROOT / "tests" / "thorough.txt").read_text("utf-8").splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    return {w[0]: int(w[1]) if len(w) > 1 else 0 for w in words if w}


def pytest_collection_modifyitems(items):
    """Mark what only the thorough suite runs. Of a test's cases those that stay are spread
    evenly.
    """
    rules = thorough_rules()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, its in cases.items():
        n = rules.get(test, rules.get(test.partition("::")[0]))
        if n is None:
            continue
        last = len(its) - 1
        stay = {round(i * last / (n - 1)) for i in range(n)} if n > 1 else set(range(n))
        for i, item in enumerate(its):
            if i not in stay:
                item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def studio():
    """The real studio with the tone engine.

    Tests use visits of their own, so they do not see each other.
    """
    from tests.serve import running

    env = {"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_SOCKETS_PER_ADDRESS": "1000"}
    with running(env=env) as studio:
        yield studio


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("the shared data is not here")
    return path
