"""What becomes of the fields of a request: which instruction an engine is told, and in which language."""

from __future__ import annotations

import pytest

from webui.errors import BadInput
from webui.studio.asked import asked_for, known_language
from webui.studio.demos import _settings
from webui.types import LANGUAGES, Abilities, Voice

VOICE = Voice("v", "V", "en", "Hello there.", "f", 3.0, 0.0)


@pytest.mark.parametrize(
    ("mode", "follows", "told"),
    [
        ("instruct", False, "happily"),
        ("zero_shot", False, ""),
        ("zero_shot", True, "happily"),
        ("cross_lingual", True, ""),
        ("preset", True, ""),
        ("auto", True, "happily"),
    ],
)
def test_an_instruction_goes_to_those_who_follow_it(mode, follows, told):
    about = Abilities("e", "1", 24000, ("zero_shot", "instruct"), ("en",), told_clones=follows)
    request = asked_for(about, "Hello.", VOICE, mode, "happily", "en", 1.0, 0)
    assert request.instruction == told and request.mode == ("instruct" if mode == "auto" else mode)
    assert request.transcript == ("Hello there." if mode == "zero_shot" else "")


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("auto", "auto"),
        ("", "auto"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("EN_us", "en"),
        (" yue-Hant-HK ", "yue"),
        ("ja", "ja"),
    ],
)
def test_a_language_is_known_by_its_first_part(asked, known):
    about = Abilities("e", "1", 24000, ("zero_shot",), ("en",))
    assert (
        asked_for(about, "Hello.", VOICE, "zero_shot", "", asked, 1.0, 0).language
        == known
        == _settings({"language": asked})["language"]
    )


@pytest.mark.parametrize("asked", ["xx", "english", "z", "中文", "en;zh", "-", "tlh-QO"])
def test_an_unknown_language_is_refused_with_those_that_are_known(asked):
    for ask in (known_language, lambda tag: _settings({"language": tag})):
        with pytest.raises(BadInput) as told:
            ask(asked)
        assert (told.value.code, told.value.param, told.value.status) == (
            "bad_language",
            "language",
            422,
        )
        for sentence in (told.value.en, told.value.zh):
            assert asked in sentence and all(tag in sentence for tag in LANGUAGES)
