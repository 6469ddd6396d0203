"""The natural voice keeps the contract of every engine."""

import pytest

from tests.engine import builtin_setup
from tests.engine import natural_setup as setup
from tests.engine.contract import EngineContract, ask


@setup.needs_weights
class TestNatural(EngineContract):
    def stored_prompts(self, engine):
        voices = [lane.ask({"op": "count"})[0]["voices"] for lane in engine.natural.lanes]
        return voices, set(engine._prompts)

    @pytest.fixture
    def engine(self):
        engine = setup.engine()
        assert engine.settle(ask())[0].voice_engine == "natural"
        return engine

    @pytest.fixture
    def reference(self):
        return (*builtin_setup.clip(), "大家好", "zh")

    @pytest.fixture
    def prompt(self):
        return setup.prompt()
