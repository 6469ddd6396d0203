"""The language model in the form of the second generation's: golden data, its own marks, its length
rule, text that arrives, int8 and graphs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scripts.golden_checks import llm3 as golden_llm
from scripts.golden_checks import silent3 as golden_silent
from tests.engine.cosyvoice3_small import GOLDEN
from tests.engine.cosyvoice_small import random_state
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice.checkpoint_v3 import END, FILL, MARKS, START, TASK, as_speech_lm
from webui.engine.cosyvoice.cuda.lm import CapturedLM, LmSizes
from webui.engine.cosyvoice.int8 import weights
from webui.engine.cosyvoice.int8.runtime import Int8Lm
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM, generate
from webui.engine.cosyvoice.llm.sampler import RasRule, Sampler
from webui.engine.cosyvoice.llm.silence_filter import SILENT, SilenceFilter
from webui.engine.cosyvoice.llm.streaming_input import TextStream

torch.set_num_threads(1)
CODES = 40
DIMS = LmDims(64, 96, 2, 4, 2, 60, CODES, marks=MARKS, end_at=END, fill_at=FILL)
TEXT, PROMPT_TEXT, PROMPT_SPEECH = [3, 9, 27, 21, 3], [5, 50, 8], [1, 2, 30, 39, 7, 7]


def published() -> dict[str, torch.Tensor]:
    """Tensors as a directory has them."""
    state = random_state(Qwen2LM, DIMS, 3)
    return {
        key: value
        for key, value in state.items()
        if key not in ("llm_embedding.weight", "llm_decoder.bias")
    }


def tiny(**preferred: float) -> Qwen2LM:
    """preferred: how much the score of a mark is raised, by its row behind the codes: m1=30."""
    lm = Qwen2LM.of(DIMS, as_speech_lm(published()), torch.float64)
    for name, more in preferred.items():
        lm.llm_decoder.bias[CODES + int(name[1:])] += more
    return lm


def speak(lm, seed: int, text=TEXT) -> list[int]:
    never = lm.dims.forbidden_ids(lm.dims.end)
    return list(
        generate(
            lm,
            lm.prefix(PROMPT_TEXT).fork(200),
            text,
            PROMPT_SPEECH,
            Sampler(seed, never=never),
        )
    )


@pytest.mark.parametrize("check", [golden_llm.check, golden_silent.check], ids=["llm", "silent"])
class TestGolden:
    def folder(self, check) -> str:
        return "llm" if check is golden_llm.check else "silent"

    def test_kept(self, check):
        assert exceeded(check, GOLDEN / self.folder(check)) == []

    @pytest.mark.shared
    def test_whole(self, check, shared_dir):
        assert exceeded(check, shared_dir / "golden3" / self.folder(check)) == []


def test_start_and_task_are_rows_of_the_speech_embedding_and_the_head_has_no_bias():
    state, lm = published(), tiny()
    table = state["speech_embedding.weight"].double()
    assert torch.equal(lm.special_embedding(0)[0, 0], table[CODES + START]) and torch.equal(
        lm.special_embedding(1)[0, 0], table[CODES + TASK]
    )
    assert lm.dims.rows == CODES + 200 and lm.dims.end == CODES + 1 and lm.dims.fill == CODES + 3
    assert not lm.llm_decoder.bias.any()
    assert "llm_embedding.weight" not in as_speech_lm({}), (
        "what is missing is named where the tensors are put in"
    )


@pytest.mark.parametrize("mark", [0, 1, 2, 3, 4, 199])
def test_no_mark_ends_a_text_before_its_least(mark):
    """The published code masks the start id only, which is none that ends."""
    ids = speak(tiny(**{f"m{mark}": 30.0}), 1)
    assert len(ids) >= 2 * len(TEXT) and all(0 <= i < CODES for i in ids)
    assert mark != 1 or len(ids) == 2 * len(TEXT)


def test_a_text_without_end_ends():
    assert len(speak(tiny(m1=-300.0), 2)) == 20 * len(TEXT)


class TestArriving:
    HEAD = (11, 12, 59)  # up to the mark

    def stream(self, lm, seed=0, prompt_text=(), prompt_speech=()) -> TextStream:
        sampler = Sampler(seed, never=lm.dims.forbidden_ids(lm.dims.end, lm.dims.fill))
        return TextStream(lm, lm.new_cache(), prompt_text, prompt_speech, sampler, self.HEAD)

    def test_nothing_is_said_before_five_ids_were_read(self):
        pieces = []

        def arriving():
            for i in range(10, 33):
                pieces.append(i)
                yield i

        stream = self.stream(tiny())
        next(stream.speak(arriving()))
        assert pieces == [10, 11, 12, 13, 14] and stream.forward_lengths == [1 + len(self.HEAD) + 5]

    @pytest.mark.parametrize("mark", [0, 1, 2, 3, 77])
    def test_no_mark_ends_it_while_text_is_arriving(self, mark):
        lm = tiny(**{f"m{mark}": 25.0})
        stream = self.stream(lm, 1)
        output = list(stream.speak(iter(range(10, 33))))
        assert all(0 <= i < CODES for i in output) and len(output) <= 20 * 23
        assert mark == 3 or stream.out.index(lm.dims.fill) == 15, (
            "the first round was spoken to its end"
        )

    def test_prompt_speech_that_no_text_was_left_for_is_read_all_the_same(self):
        lm, speech = tiny(), [i % CODES for i in range(34)]
        stream = self.stream(lm, 2, [20, 21, 22], speech)
        list(stream.speak(iter([30, 31])))
        assert stream.forward_lengths[0] == 1 + len(self.HEAD) + 3 + 2 + 1 + 34
        whole = torch.cat(
            [
                lm.special_embedding(0),
                lm.text([*self.HEAD, 20, 21, 22, 30, 31][:8]),
                lm.speech(speech[:15]),
                lm.special_embedding(1),
                lm.speech(speech[15:]),
            ],
            1,
        )
        again = self.stream(lm, 2, [20, 21, 22], speech)
        calls = []
        real, again._lm = again._lm, lm
        again._forward = lambda: (
            calls.append(torch.cat(again._input, 1)),
            real.step(calls[-1], again._cache)[0],
        )[1]
        list(again.speak(iter([30, 31])))
        assert torch.equal(calls[0], whole)


def test_what_the_flow_does_not_hear_is_drawn_all_the_same():
    hears, silent = SilenceFilter(), sorted(SILENT)
    assert [hears(i) for i in (*silent[:7], 3000, silent[0])] == [True] * 5 + [False] * 2 + [
        True,
        True,
    ]
    assert SilenceFilter()(silent[0]), "every segment counts anew"


def test_int8_is_near():
    state = as_speech_lm(published())
    exact, quick = Qwen2LM.of(DIMS, state), Int8Lm(DIMS, weights.qwen2(DIMS, state))
    x = exact.prefill_embeddings(TEXT, PROMPT_SPEECH)
    expected, result = (
        exact.step(x, exact.prefix(PROMPT_TEXT).fork()),
        quick.step(
            quick.prefill_embeddings(TEXT, PROMPT_SPEECH), quick.prefix(PROMPT_TEXT).fork(0)
        ),
    )
    assert (
        result.shape == (1, CODES + 200)
        and (result - expected).square().mean().sqrt() < 0.05 * expected.std()
    )
    assert all(i < CODES for i in speak(quick, 4))


def test_the_graphs_of_the_second_generation_draw_the_same_ids():
    """On static buffers, without a GPU."""
    lm = Qwen2LM.of(DIMS, as_speech_lm(published()))
    static = CapturedLM(lm, RasRule(), LmSizes((1, 2), (64, 128), 8))
    static.record()
    past = static.prefix(PROMPT_TEXT).fork(110)
    static.start(
        static.prefill_embeddings(TEXT, PROMPT_SPEECH),
        past,
        SamplingRequest(5, 2 * len(TEXT), 20 * len(TEXT)),
    )
    drawn_ids, over = [], False
    while not over:
        (output,) = static.decode([past], 4)
        drawn_ids, over = drawn_ids + output.ids, output.over
    assert drawn_ids == speak(lm, 5)


def test_marks_must_be_among_the_rows():
    with pytest.raises(ValueError, match="marks"):
        replace(DIMS, marks=2)
