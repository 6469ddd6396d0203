"""The transformer flow: golden data, chunked with memory = one full run, in company = alone, rows
apart = together, and what it keeps.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from scripts.golden_checks import flow3 as flow_check
from tests.engine.cosyvoice3_small import DIT_DIMS, GOLDEN, small_flow
from tests.engine.cosyvoice_small import ids_of, random_state, voice_of
from tests.engine.test_cosyvoice_flow import exceeded
from tests.engine.test_cosyvoice_flow_cache import listed, relative_rms, streamed
from tests.engine.test_cosyvoice_together import side_by_side
from webui.engine.cosyvoice.flow import Blocks, VoiceState
from webui.engine.cosyvoice.flow.conv import ConvCache
from webui.engine.cosyvoice.flow.dit_dims import DitDims
from webui.engine.cosyvoice.flow.dit_flow import DitFlow
from webui.engine.cosyvoice.mkldnn_linear import PrepackedLinear, fits
from webui.errors import BadInput, NotReady

torch.set_num_threads(1)
GRID = Blocks(25)
PROMPTS = [0, 2, 27, 53, 101]
SCHEDULES = [[28, 25], [1], [26, 1, 40], [200]]


@pytest.fixture(scope="module")
def flow():
    return small_flow(torch.float64)


@pytest.fixture(scope="module")
def flow32():
    return small_flow(torch.float32)


def test_golden_subset():
    assert exceeded(flow_check.check, GOLDEN / "flow") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(flow_check.check, shared_dir / "golden3" / "flow") == []


@pytest.fixture(
    scope="module",
    params=[(prompt, cut) for prompt in PROMPTS for cut in ("grid", "listed")],
    ids=str,
)
def whole_run(request, flow):
    prompt, cut = request.param
    blocks, prompt_args, ids = (
        GRID if cut == "grid" else listed(prompt),
        voice_of(prompt),
        ids_of(84),
    )
    return ids, VoiceState.of(flow, *prompt_args, blocks), flow.whole(ids, *prompt_args, blocks)


@pytest.mark.parametrize("hops", SCHEDULES, ids=str)
def test_every_schedule_gives_the_frames_of_a_full_run(whole_run, hops):
    ids, voice, full = whole_run
    mel = torch.cat(streamed(voice.begin(), ids, hops))
    assert mel.shape == full.shape == (168, 80)
    assert (mel - full).abs().max() < 1e-12


@pytest.mark.parametrize("prompt", [0, 27, 53])
def test_single_precision_agrees_to_rounding(flow32, prompt):
    ids, voice = ids_of(140), voice_of(prompt)
    for blocks in (GRID, listed(prompt)):
        mel = torch.cat(streamed(VoiceState.of(flow32, *voice, blocks).begin(), ids, [28, 25]))
        assert (mel - flow32.whole(ids, *voice, blocks)).abs().max() < 5e-5


@pytest.mark.parametrize(("prompt", "mel_frames"), [(27, 51), (53, 99), (60, 0), (30, 67)])
def test_a_prompt_mel_of_another_length_than_its_ids(flow, prompt, mel_frames):
    ids, voice = ids_of(60), voice_of(prompt, mel_frames)
    full = flow.whole(ids, *voice, GRID)
    mel = torch.cat(streamed(VoiceState.of(flow, *voice).begin(), ids, [11]))
    assert mel.shape == full.shape == (2 * (60 + prompt) - mel_frames, 80)
    assert (mel - full).abs().max() < 1e-12


@pytest.mark.parametrize("first", [10, 25])
@pytest.mark.parametrize("prompt", [0, 7, 53])
def test_behind_a_prompt_that_ends_on_a_block_only_new_frames_are_computed(flow, prompt, first):
    voice_args, ids = voice_of(prompt), ids_of(130)
    voice = VoiceState.of(
        flow, *voice_args, Blocks.behind(prompt, first), ahead=ids_of(3, seed=9) if prompt else ()
    )
    state, frame_counts = voice.begin(), []
    hook = flow.decoder.estimator.register_forward_pre_hook(
        lambda module, inputs: frame_counts.append(inputs[0].shape[1])
    )
    assert len(state.step(ids[: first + 3])) == 2 * first == state.computed_frames
    state.step(ids, final=True)
    hook.remove()
    assert state.computed_frames == state.emitted_frames == 2 * len(ids) == sum(frame_counts) / 10
    hops = [
        torch.cat(streamed(voice.begin(), ids, voice_args)) for voice_args in ([1], [28, 25], [200])
    ]
    assert all((hop - hops[0]).abs().max() < 1e-12 for hop in hops)


@pytest.mark.parametrize("steps", [5, 10])
def test_the_number_of_euler_steps_is_the_models(steps):
    flow = small_flow(torch.float64, replace(DIT_DIMS, euler_steps=steps))
    voice = VoiceState.of(flow, *voice_of(30))
    assert len(voice.pasts) == steps and voice.bytes == 50 * flow.dims.bytes_per_frame(8)
    mel = torch.cat(streamed(voice.begin(), ids_of(40), [28, 25]))
    assert (mel - flow.whole(ids_of(40), *voice_of(30), GRID)).abs().max() < 1e-12


@pytest.mark.parametrize("fault", ["k/v", "position tails", "look-ahead tail", "positions"])
def test_a_wrong_memory_shows(flow, monkeypatch, fault):
    ids, prompt_args = ids_of(60), voice_of(53)
    full = flow.whole(ids, *prompt_args, GRID)
    voice = VoiceState.of(flow, *prompt_args)
    if fault == "k/v":
        for past in voice.pasts:
            past.store.prefix = torch.zeros_like(past.store.prefix)
    elif fault == "position tails":
        for past in voice.pasts:
            past.tails = ConvCache(
                {slot: torch.zeros_like(rows) for slot, rows in past.tails.rows.items()}
            )
    elif fault == "look-ahead tail":
        voice.encoder_past.rows = {
            slot: torch.zeros_like(rows) for slot, rows in voice.encoder_past.rows.items()
        }
    else:
        real = flow.decoder.estimator.turn
        monkeypatch.setattr(
            flow.decoder.estimator,
            "turn",
            lambda starts, count, like: real([0] * len(starts), count, like),
        )
    mel = torch.cat(streamed(voice.begin(), ids, [28, 25]))
    assert relative_rms(mel, full) > 1e-3


@pytest.mark.parametrize("apart", [False, True], ids=["rows together", "a core per guidance row"])
def test_requests_in_one_call_get_the_frames_of_their_own(flow, apart):
    with ThreadPoolExecutor(1) as pool:
        flow.decoder.beside = pool if apart else None
        try:
            alone, together = side_by_side(flow)
        finally:
            flow.decoder.beside = None
    for own, joint in zip(alone, together, strict=True):
        assert own.shape == joint.shape == (180, 80) and torch.allclose(
            joint, own, rtol=0, atol=1e-12
        )


def test_rows_apart_give_the_frames_of_rows_together(flow):
    ids = ids_of(84)
    together = torch.cat(streamed(VoiceState.of(flow, *voice_of(53)).begin(), ids, [28, 25]))
    with ThreadPoolExecutor(1) as pool:
        flow.decoder.beside = pool
        try:
            apart = torch.cat(streamed(VoiceState.of(flow, *voice_of(53)).begin(), ids, [28, 25]))
        finally:
            flow.decoder.beside = None
    assert torch.allclose(apart, together, rtol=0, atol=1e-12)


def test_requests_leave_nothing_to_the_next(flow):
    voice, ids = VoiceState.of(flow, *voice_of(53)), ids_of(84)
    first = torch.cat(streamed(voice.begin(), ids, [28, 25]))
    for seed, hops in itertools.product(range(12), ([7], [28, 25])):
        state = voice.begin()
        streamed(state, ids_of(40, seed), hops)
        state = voice.begin()  # and one that is let go half-way
        state.step(ids_of(40, seed)[:28])
        state.close()
    assert torch.equal(torch.cat(streamed(voice.begin(), ids, [28, 25])), first)


def test_a_step_that_fails_half_way_can_be_made_again(flow, monkeypatch):
    voice, ids = VoiceState.of(flow, *voice_of(53)), ids_of(84)
    whole, state = torch.cat(streamed(voice.begin(), ids, [28, 200])), voice.begin()
    first, real, calls = state.step(ids[:28]), flow.decoder.estimator.forward, []

    def forward(*args):
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("out of memory")
        return real(*args)

    monkeypatch.setattr(flow.decoder.estimator, "forward", forward)
    with pytest.raises(RuntimeError):
        state.step(ids, final=True)
    assert torch.equal(torch.cat([first, state.step(ids, final=True)]), whole)


def test_only_the_first_head_knows_positions(flow):
    qkv = torch.randn(
        3, 2, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    turned = flow.decoder.estimator.turn([0, 7], 5, qkv)(qkv.clone())
    assert torch.equal(turned[:, :, 1], qkv[:, :, 1]) and torch.equal(turned[2], qkv[2])
    assert torch.equal(turned[:2, 0, 0, 0], qkv[:2, 0, 0, 0]), "position 0 turns nothing"
    a, b = qkv[0, 1, 0, 3, 2:4]
    angle = torch.tensor((7 + 3) * 10000.0 ** (-2 / 8), dtype=torch.float64)
    assert torch.allclose(
        turned[0, 1, 0, 3, 2:4],
        torch.stack((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin())),
        atol=1e-6,
    )


def test_what_the_time_needs_is_a_table_and_its_matrices_are_gone(flow):
    names = {name for name, _ in flow.named_parameters()}
    assert not any("attn_norm" in name or "norm_out" in name for name in names)
    assert flow.decoder.time_table.shape == (10, 6 * 2 + 2, 32)


def test_the_real_sizes():
    dims = DitDims()
    assert dims.bytes_per_frame(2) == 1.71875 * 2**20
    with torch.device("meta"):
        model = DitFlow(dims)
    assert sum(p.numel() for p in model.parameters()) == 332_257_088
    assert sum(p.numel() for p in model.decoder.parameters()) == 331_142_224


def test_masks_matter_and_full_attention_is_another_result(flow):
    streaming, full = (flow.whole(ids_of(60), *voice_of(10), blocks) for blocks in (GRID, None))
    assert streaming.shape == full.shape == (120, 80) and (streaming - full).abs().max() > 0.01


def test_misfits_are_named():
    state = random_state(DitFlow, DIT_DIMS, 1)
    state["decoder.estimator.proj_out.bias"] = torch.zeros(79)
    with pytest.raises(NotReady, match=r"flow\.pt.*proj_out\.bias"):
        DitFlow.of(DIT_DIMS, state)
    with pytest.raises(ValueError, match="divide"):
        replace(DIT_DIMS, dit_dim=40)
    with pytest.raises(BadInput, match="300 seconds"):
        small_flow(torch.float32).whole(ids_of(7501), *voice_of(0))


def test_bfloat16_stays_near_and_lies_as_the_matrix_units_want_it():
    exact = small_flow(torch.float32).whole(ids_of(30), *voice_of(10), GRID)
    flow = small_flow(torch.bfloat16)
    rough = flow.whole(ids_of(30), *voice_of(10), GRID)
    assert rough.dtype == torch.float32 and relative_rms(rough, exact) < 0.05
    arranged = [m for m in flow.decoder.estimator.modules() if isinstance(m, PrepackedLinear)]
    assert len(arranged) == (
        4 * DIT_DIMS.dit_depth if fits(torch.zeros(1, 1, dtype=torch.bfloat16)) else 0
    )
