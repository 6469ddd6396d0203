"""Fixtures of the unit tests: the local server that a model is fetched from."""

from __future__ import annotations

import threading

import pytest

from tests.unit.model_origin import HUBS, Origin, serve_hubs


@pytest.fixture
def origin(monkeypatch):
    server = Origin()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    serve_hubs(server, monkeypatch)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(params=("", *HUBS))
def source(request) -> str:
    """Each kind of source: a plain folder, and both hubs by their names."""
    return request.param
