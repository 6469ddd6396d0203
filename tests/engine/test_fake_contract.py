"""The fake keeps the contract, so tests built on it say something about real engines."""

import numpy as np
import pytest

from tests.engine.contract import EngineContract
from tests.engine.fake import RATE, FakeEngine


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
        return np.sin(np.arange(RATE * 4) / 20).astype(np.float32), RATE, "hello", "en"

    @pytest.fixture
    def prompt(self, engine, reference):
        return engine.encode(*reference)
