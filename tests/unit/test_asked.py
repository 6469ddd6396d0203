"""What becomes of the fields of a request: which instruction an engine is told, and in which
language.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from webui.errors import BadInput
from webui.studio.request_builder import (
    SHORT_ARRIVED,
    SHORT_TEXT,
    build_request,
    choose_mode,
    known_language,
    late_notes,
)
from webui.studio.share_links import _settings
from webui.types import LANGUAGES, MODES, Abilities, Segmentation, SpeechRequest, Voice

VOICE = Voice("v", "V", "en", "Hello there.", "f", 3.0, 0.0)


def asked_in(about, typed, voice, mode, instruction="", language="auto") -> SpeechRequest:
    request = build_request(about, typed, voice, language, 1.0, 0)
    return choose_mode(about, request, voice, mode, instruction)[0]


@pytest.mark.parametrize(
    ("mode", "follows", "expected"),
    [
        ("instruct", False, "happily"),
        ("zero_shot", False, ""),
        ("zero_shot", True, "happily"),
        ("cross_lingual", True, ""),
        ("preset", True, ""),
        ("auto", True, "happily"),
    ],
)
def test_an_instruction_goes_to_those_who_follow_it(mode, follows, expected):
    about = Abilities("e", "1", 24000, ("zero_shot", "instruct"), ("en",), told_clones=follows)
    request = asked_in(about, "Hello.", VOICE, mode, "happily", "en")
    assert request.instruction == expected and request.mode == (
        "instruct" if mode == "auto" else mode
    )
    assert request.transcript == ("Hello there." if mode == "zero_shot" else "")


@pytest.mark.parametrize(
    ("tag", "expected"),
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
def test_a_language_is_known_by_its_first_part(tag, expected):
    about = Abilities("e", "1", 24000, ("zero_shot",), ("en",))
    assert (
        build_request(about, "Hello.", VOICE, tag, 1.0, 0).language
        == expected
        == _settings({"language": tag})["language"]
    )


@pytest.mark.parametrize("language", ["xx", "english", "z", "中文", "en;zh", "-", "tlh-QO"])
def test_an_unknown_language_is_refused_with_those_that_are_known(language):
    for ask in (known_language, lambda tag: _settings({"language": tag})):
        with pytest.raises(BadInput) as exc_info:
            ask(language)
        assert (exc_info.value.code, exc_info.value.param, exc_info.value.status) == (
            "bad_language",
            "language",
            422,
        )
        for sentence in (exc_info.value.en, exc_info.value.zh):
            assert language in sentence and all(tag in sentence for tag in LANGUAGES)


@pytest.mark.parametrize(
    ("typed", "language", "expected"),
    [("<|jp|>はい", "auto", "ja"), ("<|en|>Hi", "zh", "en"), ("<|im_end|>Hi", "zh", "zh"),
        ("Hi <|en|>", "auto", "auto")],
)  # fmt: skip
def test_the_mark_that_a_text_begins_with_is_its_language(typed, language, expected):
    about = Abilities("e", "1", 24000, MODES, ("en",))
    assert build_request(about, typed, VOICE, language, 1.0, 0).language == expected


@pytest.mark.parametrize(
    ("typed", "mode"),
    [("Hello.", "zero_shot"), ("<|en|>Hello.", "zero_shot"), ("<|ja|>はい", "cross_lingual"),
        ("<|yue|>Hello.", "cross_lingual"), ("你<|en|>好", "cross_lingual")],
)  # fmt: skip
def test_the_marked_language_decides_whether_the_clip_speaks_another(typed, mode):
    about = Abilities("e", "1", 24000, MODES, ("en",))
    request = asked_in(about, typed, VOICE, "auto")
    assert request.mode == mode and request.text == typed


def test_marks_are_no_part_of_an_instruction_and_reach_an_engine_with_a_transcript():
    """Which reads a transcript as it was typed where it sees one, and never speaks it."""
    about = Abilities("e", "1", 24000, MODES, ("en",), told_clones=True)
    prefix = "You are a helpful assistant."
    marked = f"{prefix}<|endofprompt|>Hello there."
    voice = replace(VOICE, transcript=marked)
    for instruction in (
        f"{prefix} Slowly.<|endofprompt|>",
        "Slowly.<endofprompt>",
        "<|zh|>Slowly. ",
    ):
        request = asked_in(about, "Hello.", voice, "zero_shot", instruction, "en")
        assert (request.instruction, request.transcript) == ("Slowly.", marked)
    only = replace(VOICE, transcript="<|en|> <|endofprompt|>")
    assert asked_in(about, "a", only, "zero_shot").transcript == ""
    assert asked_in(about, "Hello.", VOICE, "auto", "<|endofprompt|>").mode == "zero_shot"


@pytest.mark.parametrize(
    ("text", "more", "mode"),
    [
        ("字" * 9, {}, "cross_lingual"), ("字" * 10, {}, "zero_shot"),
        ("字" * 9, {"instruction": "Slowly."}, "instruct"),
        ("字" * 9, {"transcript": ""}, "zero_shot"),
        ("字" * 9, {"mode": "preset"}, "preset"), ("a" * 40, {}, "cross_lingual"),
        ("a" * 60, {}, "zero_shot"),
    ],
)  # fmt: skip
def test_a_text_shorter_than_half_of_the_transcript_is_spoken_without_it(text, more, mode):
    rule = Segmentation(80, 60, 20)
    about = Abilities("e", "1", 24000, MODES, ("zh",), segmentation=rule, told_clones=True)
    fields = {"mode": "zero_shot", "instruction": "", "transcript": "稿" * 20} | more

    def fitted(about, transcript):
        voice = replace(VOICE, transcript=transcript)
        request = SpeechRequest("r", text, "v", segments=(text,))
        mode_fields = (fields["mode"], fields["instruction"])
        chosen, left_out, notes = choose_mode(
            about, request, voice, *mode_fields, reads_transcripts=False
        )
        assert not left_out
        return chosen, notes

    request, notes = fitted(about, fields["transcript"])
    assert request.mode == mode
    assert notes == ([SHORT_TEXT] if mode != fields["mode"] else [])
    expected_transcript = "" if notes or fields["mode"] == "preset" else fields["transcript"]
    assert (
        request.transcript == expected_transcript and request.instruction == fields["instruction"]
    )
    assert (
        fitted(about, fields["transcript"] and f"<|zh|>{fields['transcript']}")[0].mode == mode
    ), "marks do not count"
    unread = replace(about, segmentation=None), replace(about, modes=("zero_shot", "preset"))
    for other in unread:
        assert fitted(other, fields["transcript"])[0].mode == fields["mode"]


def test_a_text_that_is_still_written_keeps_its_transcript_and_the_caller_is_told_in_the_end():
    rule = Segmentation(80, 60, 20)
    about = Abilities("e", "1", 24000, MODES, ("zh",), segmentation=rule)
    voice = replace(VOICE, transcript="稿" * 20)
    request = SpeechRequest("r", "字", "v", segments=("字",))
    chosen, _, notes = choose_mode(about, request, voice, "zero_shot", "", is_text_whole=False)
    assert (chosen.mode, chosen.transcript, notes) == ("zero_shot", voice.transcript, [])
    assert late_notes(about, chosen) == [SHORT_ARRIVED]
    assert late_notes(about, replace(chosen, segments=("字" * 10,))) == []
    assert late_notes(replace(about, modes=("zero_shot",)), chosen) == []
