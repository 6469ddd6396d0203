"""The fake keeps the contract, so tests built on it say something about real engines."""

import pytest

from tests.engine.contract import EngineContract, tone_reference
from tests.engine.fake import FakeEngine


class TestFake(EngineContract):
    def stored_prompts(self, engine):
        return dict(engine.prompts)

    @pytest.fixture
    def engine(self):
        engine = FakeEngine()
        engine.start()
        yield engine
        assert engine.opened == engine.finalised
        engine.close()

    @pytest.fixture
    def reference(self):
        return tone_reference()

    @pytest.fixture
    def prompt(self, engine, reference):
        return engine.encode(*reference)
