"""Chunked with memory equals one full run, for every schedule and prompt; and the memory is really
used, shared and given back.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from tests.engine.cosyvoice_small import FLOW_DIMS, GOLDEN, ids_of, small_flow, voice_of
from webui.engine.cosyvoice.flow import Blocks, FlowState, VoiceState
from webui.engine.cosyvoice.flow.conformer import EncoderCache
from webui.engine.cosyvoice.flow.conv import ConvCache
from webui.engine.cosyvoice.flow.kv_cache import attend
from webui.engine.cosyvoice.flow.unet import EstimatorCache

torch.set_num_threads(1)
GRID = Blocks(25)


@pytest.fixture(scope="module")
def flow():
    return small_flow(torch.float64)


@pytest.fixture(scope="module")
def flow32():
    return small_flow(torch.float32)


def streamed(state: FlowState, ids: torch.Tensor, hops: list[int]) -> list[torch.Tensor]:
    """`hops`: how many more ids are known at each call, repeated as long as needed; the last call
    is final.
    """
    n_ids, out = 0, []
    for hop in itertools.cycle(hops):
        n_ids += hop
        if n_ids >= len(ids):
            return [*out, state.step(ids, final=True)]
        out.append(state.step(ids[:n_ids]))


def listed(prompt: int) -> Blocks:
    """A short first hop: the prompt's own block, then 10, 25, 50 ids, then the usual size."""
    return Blocks(
        25, tuple(end for end in (prompt - 3, prompt + 10, prompt + 25, prompt + 50) if end > 0)
    )


PROMPTS = [0, 1, 2, 3, 13, 25, 27, 28, 53, 75, 101]
SCHEDULES = [[28, 25], [28, 50, 100], [1], [7], [53], [26, 1, 40], [200]]


CUTS = list(itertools.product(PROMPTS, ("grid", "listed")))
# every prompt and cut id by id, the other schedules in turn: each meets seven of them, and both
# cuts
PAIRS = [
    (cut, hops)
    for n, cut in enumerate(CUTS)
    for hops in ([1], *([h for h in SCHEDULES if h != [1]] * 2)[2 * n % 6 :][:2])
]


@pytest.fixture(scope="module")
def whole_run(request, flow):
    """ids, the voice's state, and the mel of one full run"""
    prompt, cut = request.param
    blocks, prompt_args, ids = (
        GRID if cut == "grid" else listed(prompt),
        voice_of(prompt),
        ids_of(84),
    )
    return ids, VoiceState.of(flow, *prompt_args, blocks), flow.whole(ids, *prompt_args, blocks)


@pytest.mark.parametrize(("whole_run", "hops"), PAIRS, ids=str, indirect=["whole_run"])
def test_every_schedule_gives_the_frames_of_a_full_run(whole_run, hops):
    ids, voice, full = whole_run
    mel = torch.cat(streamed(voice.begin(), ids, hops))
    assert mel.shape == full.shape == (168, 80)
    assert (mel - full).abs().max() < 1e-13


@pytest.mark.parametrize("prompt", [0, 27, 53])
def test_single_precision_agrees_to_rounding(flow32, prompt):
    ids, voice = ids_of(140), voice_of(prompt)
    for blocks in (GRID, listed(prompt)):
        full = flow32.whole(ids, *voice, blocks)
        mel = torch.cat(streamed(VoiceState.of(flow32, *voice, blocks).begin(), ids, [28, 25]))
        assert (mel - full).abs().max() < 2e-5


@pytest.mark.parametrize(
    ("prompt", "mel_frames"), [(27, 51), (53, 99), (60, 41), (60, 0), (30, 67), (10, 27)]
)
def test_a_prompt_mel_of_another_length_than_its_ids(flow, prompt, mel_frames):
    ids, voice = ids_of(60), voice_of(prompt, mel_frames)
    full = flow.whole(ids, *voice, GRID)
    state = VoiceState.of(flow, *voice).begin()
    mel = torch.cat(streamed(state, ids, [11]))
    assert mel.shape == full.shape == (2 * (60 + prompt) - mel_frames, 80)
    assert (mel - full).abs().max() < 1e-13
    assert state.emitted_frames == len(mel)


def test_steps_before_the_end_give_whole_blocks_and_wanted_ids_tells_when(flow):
    ids = ids_of(140)
    for prompt, blocks in itertools.product([0, 27, 53, 60], [GRID, None]):
        blocks = blocks or listed(prompt)
        state = VoiceState.of(flow, *voice_of(prompt), blocks).begin()
        while (n_ids := state.wanted_ids) < 130:
            assert len(state.step(ids[: n_ids - 1])) == 0
            frames = len(state.step(ids[:n_ids]))
            assert frames > 0
            assert state.emitted_frames == 2 * (n_ids - 3)
    assert VoiceState.of(flow, *voice_of(53), listed(53)).begin().wanted_ids == 13


@pytest.mark.parametrize("first", [10, 25])
@pytest.mark.parametrize("prompt", [0, 7, 25, 53, 122])
def test_behind_a_prompt_that_ends_on_a_block_only_new_frames_are_computed(flow, prompt, first):
    """The clip's last 3 ids are what the prompt's last block looks ahead at; then the first hop
    wants `first` ids and 3 more.
    """
    voice_args, ids, ahead = voice_of(prompt), ids_of(130), ids_of(3, seed=9) if prompt else ()
    blocks = Blocks.behind(prompt, first)
    voice = VoiceState.of(flow, *voice_args, blocks, ahead=ahead)
    assert voice.done == prompt and voice.computed_frames == 2 * prompt
    state = voice.begin()
    assert state.wanted_ids == first + 3
    assert len(state.step(ids[: first + 3])) == 2 * first == state.computed_frames
    assert state.wanted_ids == (28 if first == 10 else 53)
    state.step(ids, final=True)
    assert state.computed_frames == state.emitted_frames == 2 * len(ids)
    hops = [
        torch.cat(streamed(voice.begin(), ids, voice_args)) for voice_args in ([1], [28, 25], [200])
    ]
    assert all((hop - hops[0]).abs().max() < 1e-13 for hop in hops)


def test_the_block_ends_behind_a_prompt():
    assert Blocks.behind(50) == Blocks(25, (25, 50)) and Blocks.behind(0) == Blocks(25)
    assert Blocks.behind(60) == Blocks(25, (10, 35, 60))
    assert Blocks.behind(30, 10) == Blocks(25, (5, 30, 40, 55))


def test_a_voice_grows_a_piece_at_a_time(flow):
    blocks = Blocks.behind(122)
    growing, pieces = VoiceState.create(flow, *voice_of(122), blocks, ahead=[1, 2, 3]), []
    while not growing.is_ready:
        growing.grow()
        pieces.append(growing.done)
    assert pieces == [72, 122]
    at_once = (
        EncoderCache(flow.dims, flow.dtype, flow.device),
        [EstimatorCache(flow.dims, flow.dtype, flow.device) for _ in range(10)],
    )
    all_ids = torch.cat([voice_of(122)[0], torch.tensor([1, 2, 3])])
    with torch.inference_mode():
        flow.advance(all_ids, 0, False, growing.prompt_mel, growing.speaker, *at_once, blocks)
    for piecewise, whole in zip(growing.pasts, at_once[1]):
        assert (piecewise.store.prefix - whole.store.data[..., :244, :]).abs().max() < 1e-13


@pytest.mark.parametrize("steps", [5, 10])
def test_the_number_of_euler_steps_is_the_models(steps):
    flow = small_flow(torch.float64, replace(FLOW_DIMS, euler_steps=steps))
    ids, prompt_args, calls = ids_of(40), voice_of(30), []
    hook = flow.decoder.estimator.register_forward_pre_hook(lambda module, inputs: calls.append(1))
    voice = VoiceState.of(flow, *prompt_args)
    assert len(calls) == steps and voice.bytes == 50 * flow.dims.bytes_per_frame(8)
    mel = torch.cat(streamed(voice.begin(), ids, [28, 25]))
    hook.remove()
    assert (mel - flow.whole(ids, *prompt_args, GRID)).abs().max() < 1e-13


def test_work_is_counted(flow32):
    ids, voice = ids_of(250), VoiceState.of(flow32, *voice_of(125))
    state = voice.begin()
    first = state.step(ids[:28])
    before = state.computed_frames, state.emitted_frames
    assert before == (100, len(first)) == (100, 50)
    for n_ids in range(53, 250, 25):
        state.step(ids[:n_ids])
    assert state.computed_frames - before[0] == state.emitted_frames - before[1]
    state.step(ids, final=True)
    assert state.emitted_frames == 500
    assert state.computed_frames / state.emitted_frames <= 1.15
    assert voice.computed_frames == 200


def test_the_estimator_is_asked_for_new_frames_only(flow32):
    ids, state = ids_of(120), VoiceState.of(flow32, *voice_of(28)).begin()
    frame_counts = []
    hook = flow32.decoder.estimator.register_forward_pre_hook(
        lambda module, inputs: frame_counts.append(inputs[0].shape[1])
    )
    streamed(state, ids, [28, 25])
    hook.remove()
    assert len(frame_counts) % 10 == 0
    assert sum(frame_counts) == 10 * state.computed_frames


def relative_rms(a, b):
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt()).item()


@pytest.mark.parametrize("fault", ["estimator k/v", "encoder k/v", "convolution tails"])
def test_a_wrong_memory_shows(flow, fault):
    ids, prompt_args = ids_of(60), voice_of(53)
    full = flow.whole(ids, *prompt_args, GRID)
    voice = VoiceState.of(flow, *prompt_args)
    if fault == "estimator k/v":
        for past in voice.pasts:
            past.store.prefix = torch.zeros_like(past.store.prefix)
    elif fault == "encoder k/v":
        for store in (voice.encoder_past.low, voice.encoder_past.high):
            store.data = torch.zeros_like(store.data)
    else:
        for past in voice.pasts:
            past.tails = ConvCache(
                {slot: torch.zeros_like(rows) for slot, rows in past.tails.rows.items()}
            )
    mel = torch.cat(streamed(voice.begin(), ids, [28, 25]))
    assert relative_rms(mel, full) > 0.01


def test_interleaved_requests_are_each_alone(flow32):
    shared = VoiceState.of(flow32, *voice_of(53))
    other = VoiceState.of(flow32, *voice_of(30, seed=6))
    ids = [ids_of(90, seed) for seed in (11, 12, 13)]
    voices = [shared, shared, other]
    alone = [
        torch.cat(streamed(voice.begin(), first, [28, 25])) for voice, first in zip(voices, ids)
    ]
    states = [voice.begin() for voice in voices]
    parts = [[], [], []]
    for n_ids in range(3, 90, 9):
        for state, first, out in zip(states, ids, parts):
            out.append(state.step(first[:n_ids]))
    for i, (state, first, out) in enumerate(zip(states, ids, parts)):
        assert torch.allclose(
            torch.cat([*out, state.step(first, final=True)]), alone[i], atol=2e-5, rtol=0
        )


def test_requests_on_two_threads_are_each_alone():
    fresh = small_flow(torch.float32)  # its position tables have yet to grow
    voice, ids = VoiceState.of(fresh, *voice_of(53)), [ids_of(300, 21), ids_of(320, 22)]
    with ThreadPoolExecutor(2) as pool:
        beside = list(
            pool.map(lambda first: torch.cat(streamed(voice.begin(), first, [28, 50])), ids)
        )
    for first, mel in zip(ids, beside):
        assert torch.equal(mel, torch.cat(streamed(voice.begin(), first, [28, 50])))


def test_the_same_calls_give_the_same_bits_whatever_ran_beside(flow32):
    voice, ids = VoiceState.of(flow32, *voice_of(53)), ids_of(90)
    prefixes = [past.store.prefix.clone() for past in voice.pasts]
    first = torch.cat(streamed(voice.begin(), ids, [28, 25]))
    for n in range(5):
        abandoned = voice.begin()
        abandoned.step(ids_of(60, seed=n))
        second = torch.cat(streamed(voice.begin(), ids, [28, 25]))
        abandoned.close()
        assert torch.equal(first, second)
    assert all(
        torch.equal(before, past.store.prefix) for before, past in zip(prefixes, voice.pasts)
    )


def test_ended_requests_hold_nothing_and_refuse_more(flow32):
    voice = VoiceState.of(flow32, *voice_of(53))
    assert voice.bytes == 100 * FLOW_DIMS.bytes_per_frame()
    state = voice.begin()
    assert state.bytes == 0
    state.step(ids_of(60))
    assert state.bytes >= 100 * FLOW_DIMS.bytes_per_frame()
    state.close()
    state.close()
    assert state.bytes == 0
    with pytest.raises(ValueError, match="final"):
        state.step(ids_of(61))


def test_memory_grows_with_the_utterance_not_with_the_calls(flow32):
    state = VoiceState.of(flow32, *voice_of(0)).begin()
    ids = ids_of(1003)
    for n_ids in range(28, 1004, 25):
        state.step(ids[:n_ids])
    assert state.bytes <= (2000 + 512) * FLOW_DIMS.bytes_per_frame()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_over_two_pieces_is_that_over_one(dtype, masked):
    draw = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, 3, n, 8, generator=draw).to(dtype) for n in (20, 57, 57))
    mask = Blocks(5).mask(0, 10, 2, q) if masked else None
    whole = attend(q, [(k, v)], mask)
    split = attend(q, [(k[:, :, :30], v[:, :, :30]), (k[:, :, 30:], v[:, :, 30:])], mask)
    assert (whole - split).abs().max() < {
        torch.float64: 1e-14,
        torch.float32: 1e-6,
        torch.bfloat16: 2e-2,
    }[dtype]


def test_low_precision_streams_too(flow):
    rough, voice, ids = small_flow(torch.bfloat16), voice_of(53), ids_of(60)
    mel = torch.cat(streamed(VoiceState.of(rough, *voice).begin(), ids, [28, 25]))
    assert relative_rms(mel, flow.whole(ids, *voice, GRID).float()) < 0.05


def test_half_size_storage_stays_near(flow32):
    ids, prompt_args = ids_of(110), voice_of(53)
    exact = VoiceState.of(flow32, *prompt_args)
    mel = torch.cat(streamed(exact.begin(), ids, [28, 25]))
    for dtype, limit in ((torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        small = VoiceState.of(flow32, *prompt_args, store=dtype)
        assert small.bytes * 2 == exact.bytes
        assert (torch.cat(streamed(small.begin(), ids, [28, 25])) - mel).abs().max() < limit


def test_a_request_with_other_block_ends_is_refused_where_they_disagree(flow32):
    voice = VoiceState.of(flow32, *voice_of(60))
    voice.begin(Blocks(25, (25, 50, 70)))
    with pytest.raises(ValueError, match="first 50 ids"):
        voice.begin(Blocks(25, (30,)))
    free = VoiceState.of(flow32, *voice_of(60), keep=False)
    assert free.bytes == 0
    ids, other = ids_of(40), Blocks(25, (30,))
    mel = torch.cat(streamed(free.begin(other), ids, [9]))
    assert (mel - flow32.whole(ids, *voice_of(60), other)).abs().max() < 2e-5


def test_the_golden_net_too():
    from scripts.golden_checks.flow import load

    flow = load(GOLDEN / "flow", dtype=torch.float64)
    voice, ids = voice_of(31, dims=flow.dims), ids_of(70, dims=flow.dims)
    full = flow.whole(ids, *voice, GRID)
    mel = torch.cat(streamed(VoiceState.of(flow, *voice).begin(), ids, [28, 25]))
    assert (mel - full).abs().max() < 1e-13
