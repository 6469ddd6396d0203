"""What `auto` means: for an engine that can do it, and for the voice that was named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from webui.studio.request_builder import LEFT_OUT, choose_mode
from webui.types import CONVERT, MODES, Abilities, SpeechRequest, Voice

CLONE, READY = (
    Voice("voice-1", "Lin", "zh", "你好。", "f", 4.0, 0.0),
    Voice("preset-1", "中文女", "", "", "中文女", 0.0, 0.0, starter=True),
)
ALL = Abilities("cosyvoice2", "1", 24000, MODES, ("zh",))
DEAF = replace(
    ALL, modes=("zero_shot", "cross_lingual", "preset", CONVERT)
)  # a model that follows no instructions


def asked_in(about, voice, mode, how):
    """(mode, instruction), and what the caller must know."""
    request = SpeechRequest("r", "你好。", voice.id, segments=("你好。",))
    request, left_out, _ = choose_mode(about, request, voice, mode, how)
    return (request.mode, request.instruction), left_out


@pytest.mark.parametrize(
    ("voice", "how", "about", "expected"),
    [
        (CLONE, "", ALL, ("zero_shot", "")),
        (CLONE, "开心", ALL, ("instruct", "开心")),
        (READY, "", ALL, ("preset", "")),
        (READY, "开心", ALL, ("instruct", "开心")),
        (READY, "", replace(ALL, modes=("zero_shot",)), ("cross_lingual", "")),
        (CLONE, "开心", DEAF, ("zero_shot", "")),
        (READY, "开心", DEAF, ("preset", "")),
    ],
)
def test_auto_is_what_the_engine_can_and_the_voice_was_made_for(voice, how, about, expected):
    """What is no instruction for this engine never reaches it, so nobody reads it aloud; and
    whoever gave it is told.
    """
    left_out = [LEFT_OUT] if how and not expected[1] else []
    assert asked_in(about, voice, "auto", how) == (expected, left_out)


def test_what_was_named_stays():
    for mode in MODES:
        expected_instruction = "开心" if mode == "instruct" else ""
        assert asked_in(DEAF, READY, mode, "开心") == ((mode, expected_instruction), [])
