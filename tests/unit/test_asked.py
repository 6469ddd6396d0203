"""What becomes of the fields of a request: which instruction an engine is told, and in which
language.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from webui.errors import BadInput
from webui.studio.request_builder import (
    SHORT_TEXT,
    build_request,
    known_language,
    with_fitting_mode,
)
from webui.studio.share_links import _settings
from webui.types import LANGUAGES, MODES, Abilities, Segmentation, SpeechRequest, Voice

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
    request = build_request(about, "Hello.", VOICE, mode, "happily", "en", 1.0, 0)
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
        build_request(about, "Hello.", VOICE, "zero_shot", "", asked, 1.0, 0).language
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


@pytest.mark.parametrize(
    ("typed", "language", "known"),
    [("<|jp|>はい", "auto", "ja"), ("<|en|>Hi", "zh", "en"), ("<|im_end|>Hi", "zh", "zh"),
        ("Hi <|en|>", "auto", "auto")],
)  # fmt: skip
def test_the_mark_that_a_text_begins_with_is_its_language(typed, language, known):
    about = Abilities("e", "1", 24000, MODES, ("en",))
    assert build_request(about, typed, VOICE, "zero_shot", "", language, 1.0, 0).language == known


@pytest.mark.parametrize(
    ("typed", "mode"),
    [("Hello.", "zero_shot"), ("<|en|>Hello.", "zero_shot"), ("<|ja|>はい", "cross_lingual"),
        ("<|yue|>Hello.", "cross_lingual"), ("你<|en|>好", "cross_lingual")],
)  # fmt: skip
def test_the_marked_language_decides_whether_the_clip_speaks_another(typed, mode):
    about = Abilities("e", "1", 24000, MODES, ("en",))
    request = build_request(about, typed, VOICE, "auto", "", "auto", 1.0, 0)
    assert request.mode == mode and request.text == typed


def test_marks_are_no_part_of_an_instruction_and_reach_an_engine_with_a_transcript():
    """Which reads a transcript as it was typed where it sees one, and never speaks it."""
    about = Abilities("e", "1", 24000, MODES, ("en",), told_clones=True)
    prefix = "You are a helpful assistant."
    marked = f"{prefix}<|endofprompt|>Hello there."
    voice = replace(VOICE, transcript=marked)
    for told in (f"{prefix} Slowly.<|endofprompt|>", "Slowly.<endofprompt>", "<|zh|>Slowly. "):
        request = build_request(about, "Hello.", voice, "zero_shot", told, "en", 1.0, 0)
        assert (request.instruction, request.transcript) == ("Slowly.", marked)
    only = replace(VOICE, transcript="<|en|> <|endofprompt|>")
    assert build_request(about, "a", only, "zero_shot", "", "en", 1.0, 0).transcript == ""
    assert (
        build_request(about, "a", VOICE, "auto", "<|endofprompt|>", "en", 1.0, 0).mode
        == "zero_shot"
    )


@pytest.mark.parametrize(
    ("said", "more", "mode"),
    [
        ("字" * 9, {}, "cross_lingual"), ("字" * 10, {}, "zero_shot"),
        ("字" * 9, {"instruction": "Slowly."}, "instruct"),
        ("字" * 9, {"transcript": ""}, "zero_shot"),
        ("字" * 9, {"mode": "preset"}, "preset"), ("a" * 40, {}, "cross_lingual"),
        ("a" * 60, {}, "zero_shot"),
    ],
)  # fmt: skip
def test_a_text_shorter_than_half_of_the_transcript_is_spoken_without_it(said, more, mode):
    about = Abilities("e", "1", 24000, MODES, ("zh",), segmentation=Segmentation(80, 60, 20))
    fields = {"mode": "zero_shot", "transcript": "稿" * 20, "segments": (said,)} | more
    request = SpeechRequest("r", said, "v", **fields)
    fitting, notes = with_fitting_mode(about, request)
    assert fitting.mode == mode
    assert notes == ([SHORT_TEXT] if mode != request.mode else [])
    assert fitting.transcript == ("" if notes else request.transcript)
    longer = replace(request, transcript=request.transcript and f"<|zh|>{request.transcript}")
    assert with_fitting_mode(about, longer)[0].mode == mode, "marks do not count"
    assert with_fitting_mode(replace(about, segmentation=None), request) == (request, [])
    deaf = replace(about, modes=("zero_shot", "preset"))
    assert with_fitting_mode(deaf, request) == (request, [])
