"""The int8 language model: close to fp32, rows that do not meet, pasts in slots, and a converted
file that is never trusted blindly.
"""

from __future__ import annotations

import gc
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripts.small_model import sizes, tensors
from tests.engine.cosyvoice_small import ids_of, small_flow, small_vocoder, voice_of
from webui.engine.cosyvoice.flow import VoiceState
from webui.engine.cosyvoice.int8 import weights
from webui.engine.cosyvoice.int8.quantise import BLOCK, quantise, restore
from webui.engine.cosyvoice.int8.runtime import Int8Lm
from webui.engine.cosyvoice.int8.slots import FIRST_POSITIONS, FIRST_SLOTS
from webui.engine.cosyvoice.llm.dims import LmDims
from webui.engine.cosyvoice.llm.qwen2 import Qwen2LM, generate
from webui.engine.cosyvoice.llm.sampler import Sampler
from webui.engine.cosyvoice.llm.streaming_input import TextStream
from webui.engine.cosyvoice.vocoder import VocoderState

torch.set_num_threads(1)
# No width divides by a block.
DIMS = LmDims(
    hidden=96, intermediate=200, layers=3, heads=6, kv_heads=2, text_rows=60, speech_codes=40
)
TEXT, PROMPT_TEXT, PROMPT_SPEECH = [3, 9, 27, 21, 3], [5, 50, 8], [1, 2, 30, 39, 7, 7]


def random_state(dims: LmDims = DIMS) -> dict[str, torch.Tensor]:
    size = replace(
        sizes.SMALL,
        hidden=dims.hidden,
        intermediate=dims.intermediate,
        layers=dims.layers,
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        text_rows=dims.text_rows,
        codes=dims.speech_codes,
    )
    state = tensors.llm_state(size, torch.Generator().manual_seed(3))
    return {key: value for key, value in state.items() if not key.endswith("lm_head.weight")}


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    return weights.qwen2(DIMS, random_state())


@pytest.fixture
def lm(arrays) -> Int8Lm:
    return Int8Lm(DIMS, arrays)


def speak(lm: Int8Lm, seed: int, text=TEXT) -> list[int]:
    return list(generate(lm, lm.prefix(PROMPT_TEXT).fork(0), text, PROMPT_SPEECH, Sampler(seed)))


class TestNumbers:
    def test_log_probabilities_stay_near_those_of_fp32(self, lm):
        exact = Qwen2LM.of(DIMS, random_state())
        pasts = exact.prefix(PROMPT_TEXT).fork(), lm.prefix(PROMPT_TEXT).fork(0)
        x = exact.prefill_embeddings(TEXT, PROMPT_SPEECH)
        assert torch.allclose(x, lm.prefill_embeddings(TEXT, PROMPT_SPEECH), rtol=1e-3)
        pairs = [(exact.step(x, pasts[0]), lm.step(x, pasts[1]))]
        pairs += [
            (exact.step(exact.speech([i]), pasts[0]), lm.step(lm.speech([i]), pasts[1]))
            for i in range(40)
        ]
        expected, result = (torch.cat(rows) for rows in zip(*pairs, strict=True))
        difference = result - expected
        relative = difference.square().mean().sqrt() / expected.std()
        divergence = (expected.exp() * (expected - result)).sum(-1)
        print(
            f"int8 and fp32: log-probabilities differ by {difference.abs().max():.3f} at most,"
            f" {relative:.4f} of their spread; KL {divergence.max():.5f} at most"
        )
        assert relative < 0.03 and divergence.max() < 0.01
        assert torch.allclose(result.exp().sum(-1), torch.ones(len(result)), atol=1e-4)

    def test_a_weight_is_off_by_half_a_scale_at_most(self):
        weight = np.random.default_rng(0).normal(size=(7, BLOCK + 5)).astype(np.float32)
        weight[3, :BLOCK] = 0
        codes, scales = quantise(weight)
        assert (
            codes.shape == (7, 2, BLOCK)
            and (
                np.abs(restore(codes, scales, BLOCK + 5) - weight)
                <= np.repeat(scales, BLOCK, 1)[:, : BLOCK + 5] * 0.501
            ).all()
        )

    def test_positions_together_equal_positions_one_by_one(self, lm):
        x = lm.prefill_embeddings(TEXT, PROMPT_SPEECH)
        whole, single = lm.new_cache(), lm.new_cache()
        together = lm.step(x, whole)
        for i in range(x.shape[1]):
            alone = lm.step(x[:, i : i + 1], single)
        assert whole.length == single.length == x.shape[1]
        assert (
            together - alone
        ).square().mean().sqrt() / alone.std() < 0.02  # two ways to scale the same numbers


def snr_db(exact: torch.Tensor, result: torch.Tensor) -> float:
    return float(10 * torch.log10(exact.square().sum() / (result - exact).square().sum()))


def threads_of(lm: Int8Lm) -> list[int]:
    return [
        session.get_session_options().intra_op_num_threads for session in (lm._steps, lm._passage)
    ]


def test_steps_which_wait_for_memory_and_openings_which_compute_have_threads_of_their_own(arrays):
    assert threads_of(Int8Lm(DIMS, arrays, threads=1, passage_threads=2)) == [1, 2]
    assert threads_of(Int8Lm(DIMS, arrays, threads=3, passage_threads=1)) == [3, 1]


class TestBf16:
    """What runs beside the int8 language model where the processor has bf16."""

    def test_mel_of_the_flow(self):
        mels = []
        for dtype in (torch.float32, torch.bfloat16):
            stream = VoiceState.of(small_flow(dtype), *voice_of(50)).begin()
            mels.append(
                torch.cat([stream.step(ids_of(60)[:28]), stream.step(ids_of(60), True)]).float()
            )
        print(f"bf16 flow: mel SNR {snr_db(*mels):.1f} dB")
        assert len(mels[0]) == 120 and 28 < snr_db(*mels) < 100

    def test_wave_of_the_vocoder_with_narrow_convolutions(self):
        mel, waves = torch.randn(60, 80, generator=torch.Generator().manual_seed(3)), []
        for dtype in (torch.float32, torch.bfloat16):
            stream = VocoderState(small_vocoder().narrow(dtype), seed=1)
            waves.append(torch.cat([stream.push(mel[:30]), stream.push(mel[30:], True)]))
        print(f"bf16 residual convolutions: wave SNR {snr_db(*waves):.1f} dB")
        assert len(waves[0]) == 60 * 480 and 20 < snr_db(*waves) < 100
        assert (
            small_vocoder().narrow(torch.bfloat16).f0_predictor.classifier.weight.dtype
            == torch.float32
        )


class TestRows:
    @pytest.mark.parametrize("others", [1, 2, 4, 8])
    def test_batched_equals_alone_with_joins_and_leaves_at_random_steps(self, lm, others):
        rng = random.Random(others)
        texts = {
            seed: [rng.randrange(60) for _ in range(rng.randint(2, 6))]
            for seed in range(2 * others)
        }
        alone = {seed: speak(lm, seed, text) for seed, text in texts.items()}
        waiting, running, done, widest = list(texts), {}, {}, 0
        while waiting or running:
            while (
                waiting
                and len(running) < others
                and (not done or not running or rng.random() < 0.5)
            ):
                seed = waiting.pop()
                past = lm.prefix(PROMPT_TEXT).fork(0)
                running[seed] = (
                    past,
                    lm.step(lm.prefill_embeddings(texts[seed], PROMPT_SPEECH), past)[0],
                    Sampler(seed),
                    [],
                )
            for seed, (past, scores, sample, ids) in list(running.items()):
                if len(ids) < 2 * len(texts[seed]):
                    scores[DIMS.end] = -torch.inf
                chosen = sample(scores, ids)
                ids += [chosen] if chosen < DIMS.end else []
                if chosen >= DIMS.end or len(ids) == 20 * len(texts[seed]):
                    done[seed] = ids
                    del running[seed], past
            stepping = rng.sample(list(running), len(running))
            widest = max(widest, len(stepping))
            if stepping:
                scores = lm.step_many(
                    [running[s][3][-1] for s in stepping], [running[s][0] for s in stepping]
                )
                running |= {
                    s: (running[s][0], row, *running[s][2:])
                    for s, row in zip(stepping, scores, strict=True)
                }
        assert done == alone and len(set(map(tuple, done.values()))) > 1 and widest == others

    def test_one_loud_row_leaves_the_other_as_it_is(self, lm):
        """Scales of a whole tensor, as plain dynamic quantisation has them, would drown the quiet
        row.
        """
        lm._tables["speech"] = lm._tables["speech"].clone()
        lm._tables["speech"][7] *= 1000
        pasts = [lm.prefix(PROMPT_TEXT).fork(0) for _ in range(3)]
        alone = lm.step(lm.speech([4]), pasts[0])
        quiet = lm.step_many([4, 7], pasts[1:])[0]
        assert torch.allclose(quiet, alone[0], atol=1e-4)

    def test_slots_between_those_of_a_batch_keep_their_content(self, lm):
        pasts = [lm.prefix([k]).fork(0) for k in range(4)]
        for past in pasts:
            lm.step(lm.prefill_embeddings(TEXT), past)
        twin = pasts[1].fork(0)
        for step in range(5):
            lm.step_many([step, step], [pasts[3], pasts[0]])
        assert pasts[1].length == twin.length
        assert torch.equal(lm.step(lm.speech([3]), pasts[1]), lm.step(lm.speech([3]), twin))


class TestPasts:
    def test_a_fork_leaves_the_prefix_as_it_was(self, lm):
        prefix = lm.prefix(PROMPT_TEXT)
        first = [lm.step(lm.prefill_embeddings(TEXT), prefix.fork(0)) for _ in range(2)]
        branch = prefix.fork(9)
        for i in range(9):
            lm.step(lm.speech([i]), branch)
        assert prefix.length == 1 + len(PROMPT_TEXT) and branch.length == prefix.length + 9
        assert torch.equal(*first) and torch.equal(
            lm.step(lm.prefill_embeddings(TEXT), prefix.fork(0)), first[0]
        )

    def test_a_prefix_takes_no_slot_and_a_request_gives_its_own_back(self, lm):
        prefixes = [lm.prefix([k]) for k in range(3 * FIRST_SLOTS)]
        for _ in range(3 * FIRST_SLOTS):
            past = prefixes[0].fork(0)
            lm.step(lm.prefill_embeddings(TEXT), past)
            del past
            gc.collect()
        assert lm._slots.count == FIRST_SLOTS

    def test_a_past_that_outgrows_its_room_is_moved_with_all_others(self, lm):
        long, short = lm.new_cache(), lm.prefix(PROMPT_TEXT).fork(0)
        lm.step(lm.prefill_embeddings(TEXT), short)
        before = short.fork(0)
        x = lm.text([i % 60 for i in range(FIRST_POSITIONS - 2)])
        lm.step(x, long)
        for i in range(4):
            lm.step_many([i, i], [long, short])
        assert lm._slots.n_grown == 1 and long.length == FIRST_POSITIONS + 2
        for i in range(4):
            alone = lm.step(lm.speech([i]), before)
        again = lm.new_cache(FIRST_POSITIONS + 10)
        lm.step(x, again)
        for i in range(4):
            last = lm.step(lm.speech([i]), again)
        assert torch.allclose(
            lm.step(lm.speech([9]), short), lm.step(lm.speech([9]), before), atol=1e-5
        ) and len(alone)
        assert torch.allclose(
            lm.step(lm.speech([9]), long), lm.step(lm.speech([9]), again), atol=1e-5
        ) and len(last)

    def test_more_requests_than_slots(self, lm):
        pasts = [lm.prefix([k]).fork(0) for k in range(2 * FIRST_SLOTS + 1)]
        alone = torch.cat(
            [lm.step(lm.speech([5]), lm.prefix([k]).fork(0)) for k in range(len(pasts))]
        )
        assert torch.allclose(lm.step_many([5] * len(pasts), pasts), alone, atol=1e-5)

    def test_text_that_is_still_arriving(self, lm):
        output = [
            list(
                TextStream(lm, lm.new_cache(), PROMPT_TEXT, PROMPT_SPEECH, Sampler(5)).speak(
                    iter(TEXT * 3)
                )
            )
            for _ in range(2)
        ]
        assert output[0] == output[1] and len(output[0]) > 10
