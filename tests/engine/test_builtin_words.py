"""Words survive the conversion: a small recogniser understands the converted voice about as well as the base voice. And it counts words rightly."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.likeness.words import SENTENCES, Recogniser, edits, word_error, words_of
from tests.engine.builtin_setup import engine, prompt, speaker, whole
from webui.engine.builtin.mapping import BASE_WPM
from webui.types import SpeechRequest

SAID = SENTENCES[:5]  # not the best understood: those could only get worse


@pytest.mark.parametrize(("got", "wrong"), [("a cup of tea", 0), ("a cup tea", 1), ("the cup of tea", 1), ("a cup of the tea", 1), ("", 4), ("tea of cup a", 4)])
def test_words_are_counted(got, wrong):
    assert edits("a cup of tea".split(), got.split()) == wrong


def test_marks_and_capitals_are_no_words():
    assert words_of("Don't you, Mr. Smith?  No!") == ["don't", "you", "mr", "smith", "no"]


def base(hearing: int, number: int, text: str) -> tuple[np.ndarray, int]:
    return speaker().say("en", BASE_WPM, text).samples / 32768.0, 22050


def test_converted_words_are_understood():
    pytest.importorskip("pocketsphinx")
    recogniser = Recogniser()

    def converted(hearing: int, number: int, text: str) -> tuple[np.ndarray, int]:
        return whole(engine().stream(SpeechRequest(f"words-{number}", text, "v", language="en", seed=number), prompt("starter-en-mid"))), 24000

    plain, made = word_error(recogniser, base, sentences=SAID), word_error(recogniser, converted, sentences=SAID)
    assert 0.0 < plain < 0.6, "the recogniser hears words, and does not find just what it was told to find"
    assert made <= plain + 0.15
