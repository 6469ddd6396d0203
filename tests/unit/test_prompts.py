"""What a voice's prompt waits for, and whom its failure concerns."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.engine.fake import RATE, FakeEngine
from webui.audio import Clip
from webui.errors import NotReady
from webui.store import VoiceStore
from webui.studio.prompts import Prompts
from webui.types import Voice

VOICE = Voice("voice-1", "V", "en", "", "fp", 4.0, 1.0, owner="local", draft=True)


class Closing(FakeEngine):
    """Closed while it encodes."""

    def __init__(self):
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()

    def encode(self, *given):
        self.asked.set()
        assert self.go_on.wait(20)
        raise NotReady("The studio is closing.", "工作室正在关闭。")


def test_an_engine_that_is_closed_does_not_fail_its_successor_of_the_same_name(tmp_path):
    prompts, old, new = Prompts(VoiceStore(tmp_path, tmp_path)), Closing(), FakeEngine()
    clip = lambda: Clip(np.full(RATE * 2, 0.1, np.float32), RATE)  # noqa: E731
    owed = prompts.begin(VOICE, old, clip)
    assert old.asked.wait(20)
    coming = prompts.begin(VOICE, new, clip)
    assert prompts.begin(VOICE, old, clip) is owed, "who asks the same engine twice waits for the same"
    assert coming.result(20).engine == "fake"
    old.go_on.set()
    with pytest.raises(NotReady):
        owed.result(20)
    prompts.close()
