"""The built-in voice keeps the contract of every engine."""

import pytest

from tests.engine import builtin_setup as setup
from tests.engine.contract import EngineContract


class TestBuiltin(EngineContract):
    def stored_prompts(self, engine):
        return [lane["voices"] for lane in engine.counts()], set(engine._prompts)

    @pytest.fixture
    def engine(self):
        return setup.engine()

    @pytest.fixture
    def reference(self):
        return (*setup.clip(), "大家好", "zh")

    @pytest.fixture
    def prompt(self):
        return setup.prompt()
