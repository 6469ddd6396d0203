"""One started engine with the natural voice for all tests of this process; tests that need its
weights are skipped where they are not installed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.engine import builtin_setup
from webui.engine.espeak import EspeakEngine
from webui.engine.natural import weights
from webui.errors import NotReady
from webui.settings import Paths

FOLDER = Paths().natural_dir


@cache
def file() -> Path | None:
    try:
        return weights.obtain([FOLDER])
    except NotReady:
        return None


needs_weights = pytest.mark.skipif(
    file() is None, reason="the packages of requirements-natural.txt are not installed"
)


@cache
def engine() -> EspeakEngine:
    """Its natural voice is up, and the default: how fast it is here makes no difference to what it
    says.
    """
    engine = EspeakEngine(2, natural=[FOLDER])
    engine.start()
    assert engine.natural.is_decided.wait(120)
    assert engine.natural.health().state == "ready", engine.natural.health()
    engine.natural.rtf = 0.4
    return engine


@cache
def prompt(name: str = "starter-zh-high"):
    return builtin_setup.prompt(name)
