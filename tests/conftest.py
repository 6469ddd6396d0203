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


@pytest.fixture(scope="session")
def studio():
    """The real studio with the tone engine.

    Tests use visits of their own, so they do not see each other.
    """
    from tests.serve import running

    env = {"KAIKOU_STARTS_PER_MINUTE": "100000", "KAIKOU_SOCKETS_PER_ADDRESS": "1000"}
    with running(env=env) as told:
        yield told


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("the shared data is not here")
    return path
