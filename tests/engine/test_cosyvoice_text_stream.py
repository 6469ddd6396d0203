"""Text that arrives piece by piece: golden ids and call lengths, speech before the text ends, an
end that always comes.
"""

from __future__ import annotations

import pytest

from scripts.golden_checks import llm as golden_llm
from tests.engine.test_cosyvoice_lm import DIMS, PROMPT_SPEECH, PROMPT_TEXT, tiny
from webui.engine.cosyvoice.llm.sampler import Sampler
from webui.engine.cosyvoice.llm.streaming_input import TextStream

TEXT = list(range(10, 33))


def test_golden(golden, within):
    def only_streams(case, *rest):
        if case.startswith("bistream"):
            within(case, *rest)

    golden_llm.check(golden / "llm", only_streams)
    assert within.checked == 8 and not within.exceeded


def stream(lm, seed: int, prompt_text=(), prompt_speech=()) -> TextStream:
    return TextStream(lm, lm.new_cache(), prompt_text, prompt_speech, Sampler(seed))


def test_speech_starts_after_five_text_ids():
    lm, ids_read = tiny(), []

    def arriving():
        for i in TEXT:
            ids_read.append(i)
            yield i

    ids = stream(lm, 0).speak(arriving())
    next(ids)
    assert ids_read == TEXT[:5]


def test_fills_come_every_fifteen_ids_and_are_not_spoken():
    lm = tiny()
    lm.llm_decoder.bias[DIMS.fill] = -60  # only the forced ones
    request = stream(lm, 1)
    output = list(request.speak(iter(TEXT)))
    fills = [i for i, chosen in enumerate(request.out) if chosen == DIMS.fill]
    assert fills == [15, 31, 47, 63]
    assert DIMS.fill not in output and output == [i for i in request.out if i < DIMS.end]


def test_the_prompt_shifts_the_first_fill():
    lm = tiny()
    lm.llm_decoder.bias[DIMS.fill] = -60
    request = stream(lm, 1, PROMPT_TEXT + [1, 2], PROMPT_SPEECH)
    list(request.speak(iter(TEXT)))
    assert request.out.index(DIMS.fill) == 15 - len(PROMPT_SPEECH)


def test_generation_ends_even_when_the_end_is_never_drawn():
    lm = tiny()
    lm.llm_decoder.bias[DIMS.end] = -90
    request = stream(lm, 2)
    output = list(request.speak(iter(TEXT[:4])))
    assert len(output) == 20 * 4


@pytest.mark.parametrize("bad", [DIMS.end + 1, DIMS.fill])
def test_an_id_without_meaning_is_drawn_again(bad):
    lm = tiny()
    lm.llm_decoder.bias[bad] = 30
    output = list(stream(lm, 3).speak(iter(TEXT[:8])))
    assert all(0 <= i < DIMS.speech_codes for i in output)


def test_two_streams_interleaved_equal_each_alone():
    lm = tiny()
    alone = [list(stream(lm, s, PROMPT_TEXT, PROMPT_SPEECH).speak(iter(TEXT))) for s in (4, 5)]
    running = [stream(lm, s, PROMPT_TEXT, PROMPT_SPEECH).speak(iter(TEXT)) for s in (4, 5)]
    together = [[], []]
    done = [False, False]
    while not all(done):
        for i, running_stream in enumerate(running):
            chosen = None if done[i] else next(running_stream, None)
            done[i] = chosen is None
            together[i] += [] if done[i] else [chosen]
    assert together == alone
