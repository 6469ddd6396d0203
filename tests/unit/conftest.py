"""Fixtures of the unit tests: the local server that a model is fetched from."""

from __future__ import annotations

import threading

import pytest

from tests.unit.model_origin import Origin


@pytest.fixture
def origin():
    server = Origin()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
