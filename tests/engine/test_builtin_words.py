"""Words survive the conversion: a small recogniser understands the converted voice nearly as well
as the base voice. And it counts words rightly.

Everything is seeded, so a machine always hears the same words. The limit leaves five words to the
rounding of another machine.
"""

from __future__ import annotations

import numpy as np
import pytest

from scripts.likeness.words import SENTENCES, Recogniser, edits, word_error, words_of
from tests.engine.builtin_setup import engine, prompt, speaker, whole
from webui.engine.espeak.voice_mapping import BASE_WPM
from webui.types import SpeechRequest

SAID = [
    SENTENCES[i] for i in (1, 5, 6, 7, 16)
]  # well understood in the base voice: others are half lost before they are converted
BRIGHTEST = "starter-zh-high"  # asks for the widest stretch, which is what costs words
MOST = 0.25  # more than the base voice; measured +0.15, +0.67 with formants stretched by 1.16


@pytest.mark.parametrize(
    ("actual", "wrong"),
    [
        ("a cup of tea", 0),
        ("a cup tea", 1),
        ("the cup of tea", 1),
        ("a cup of the tea", 1),
        ("", 4),
        ("tea of cup a", 4),
    ],
)
def test_words_are_counted(actual, wrong):
    assert edits("a cup of tea".split(), actual.split()) == wrong


def test_marks_and_capitals_are_no_words():
    assert words_of("Don't you, Mr. Smith?  No!") == ["don't", "you", "mr", "smith", "no"]


def base(noise_seed: int, number: int, text: str) -> tuple[np.ndarray, int]:
    return speaker().say("en", BASE_WPM, text).samples / 32768.0, 22050


def test_a_sound_is_heard_as_the_same_words_whatever_was_heard_before():
    pytest.importorskip("pocketsphinx")
    recogniser, sound = Recogniser(), base(0, 4, SENTENCES[4])
    first = recogniser.words(*sound)
    recogniser.words(*base(0, 0, SENTENCES[0]))
    assert recogniser.words(*sound) == first


def test_converted_words_are_understood():
    pytest.importorskip("pocketsphinx")
    recogniser = Recogniser()

    def converted(noise_seed: int, number: int, text: str) -> tuple[np.ndarray, int]:
        return whole(
            engine().stream(
                SpeechRequest(f"words-{number}", text, "v", language="en", seed=number),
                prompt(BRIGHTEST),
            )
        ), 24000

    plain, converted_error = (
        word_error(recogniser, base, sentences=SAID),
        word_error(recogniser, converted, sentences=SAID),
    )
    assert plain < 0.25, "the recogniser hears words"
    assert converted_error < plain + MOST
