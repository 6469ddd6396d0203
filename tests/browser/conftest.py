"""One Chromium for all tests that need nothing of it but a context of their own: starting one costs
seconds.
"""

from __future__ import annotations

import pytest

from .harness import browser
from .visits import Visits


@pytest.fixture(scope="package")
def chrome():
    with browser() as b:
        yield Visits(b)
