"""A studio of their own for tests of the dictionary: without a login all visits share one account,
and so one dictionary.
"""

from __future__ import annotations

import pytest

from tests.serve import running


@pytest.fixture(scope="module")
def lone():
    with running() as studio:
        yield studio


@pytest.fixture
def http(lone):
    """A visit; the dictionary is empty."""
    with lone.client() as client:
        client.post("/tts/session")
        client.delete("/v1/pronunciations", params={"all": True})
        yield client
