"""What becomes of the fields of a request: which instruction an engine is told."""

from __future__ import annotations

import pytest

from webui.studio.asked import asked_for
from webui.types import Abilities, Voice

VOICE = Voice("v", "V", "en", "Hello there.", "f", 3.0, 0.0)


@pytest.mark.parametrize(
    ("mode", "follows", "told"),
    [("instruct", False, "happily"), ("zero_shot", False, ""), ("zero_shot", True, "happily"), ("cross_lingual", True, ""), ("preset", True, ""), ("auto", True, "happily")],
)
def test_an_instruction_goes_to_those_who_follow_it(mode, follows, told):
    about = Abilities("e", "1", 24000, ("zero_shot", "instruct"), ("en",), told_clones=follows)
    request = asked_for(about, "Hello.", VOICE, mode, "happily", "en", 1.0, 0)
    assert request.instruction == told and request.mode == ("instruct" if mode == "auto" else mode)
    assert request.transcript == ("Hello there." if mode == "zero_shot" else "")
