"""The flow against golden data, and the pieces its exactness rests on: block ends, fixed noise,
masks.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.golden_checks import flow as flow_check
from tests.engine.cosyvoice_small import FLOW_DIMS, GOLDEN, flow_state, ids_of, small_flow, voice_of
from webui.engine.cosyvoice.flow import Blocks, FlowDims, FlowModel
from webui.engine.cosyvoice.flow.cfm_solver import fixed_noise, step_times
from webui.engine.cosyvoice.relative_attention import sinusoid
from webui.errors import BadInput, NotReady

torch.set_num_threads(1)


def exceeded(check, folder) -> list[str]:
    lines = []
    check(
        folder,
        lambda case, tensor, error, tolerance: lines.append(
            (f"{case} {tensor} {error:.2e}", error <= tolerance)
        ),
    )
    assert len(lines) > 3
    return [line for line, good in lines if not good]


def test_golden_subset():
    assert exceeded(flow_check.check, GOLDEN / "flow") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(flow_check.check, shared_dir / "golden" / "flow") == []


def test_noise_is_the_fixed_one_and_leaves_the_global_generator_alone():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    noise = fixed_noise()
    small_flow()
    assert torch.equal(before, torch.get_rng_state())
    assert noise.shape == (1, 15000, 80)
    assert noise[0, :6, 0].tolist() == pytest.approx(
        [-1.1258, -1.1524, -0.2506, -0.4339, 0.8487, 0.6920], abs=5e-5
    )
    assert noise.double().sum().item() == pytest.approx(-1291.20, abs=0.01)


def test_noise_equals_a_globally_seeded_draw():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert torch.equal(torch.randn(1, 80, 15000).mT, fixed_noise())


def test_times_are_cosine_spaced():
    times = step_times()
    assert times[0] == 0 and times[-1] == pytest.approx(1, abs=1e-6)
    assert times[4].item() == pytest.approx(0.19098, abs=1e-5)


def test_position_rows_are_odd_in_sin_and_even_in_cos():
    rows = sinusoid(torch.tensor([3.0, 0.0, -3.0], dtype=torch.float64), 4)
    assert rows.shape == (3, 4)
    assert rows[1].tolist() == [0, 1, 0, 1]
    assert rows[0, 0].item() == pytest.approx(math.sin(3.0), abs=1e-12)
    assert rows[0, 2].item() == pytest.approx(math.sin(0.03), abs=1e-12)
    assert torch.equal(rows[2, 0::2], -rows[0, 0::2]) and torch.equal(rows[2, 1::2], rows[0, 1::2])


def test_position_tables_keep_their_bits_when_they_grow():
    attention = small_flow(torch.float32).encoder.encoders[0].self_attn
    with torch.inference_mode():
        before = attention.positions(20, 200).clone()
        far = attention.positions(20, 1500)
        assert torch.equal(before, attention.positions(20, 200))
        assert far.shape[1] == 1519 and torch.equal(far[:, -219:], before)


ENDS = st.lists(st.integers(1, 60), unique=True, max_size=4).map(sorted).map(tuple)


@settings(deadline=None, max_examples=100)
@given(ENDS, st.integers(1, 30), st.integers(0, 150))
def test_block_ends_agree_with_walking_one_by_one(ends, size, n):
    blocks = Blocks(size, ends)
    walked = list(ends)
    while not walked or walked[-1] <= n:
        walked.append((walked[-1] if walked else 0) + size)
    assert blocks.end_after(n) == next(end for end in walked if end > n)
    assert blocks.last_end(n) == max((end for end in walked if end <= n), default=0)


def test_mask_shows_each_position_its_block_and_all_before():
    mask = Blocks(4, (3,)).mask(0, 8, 2, torch.zeros(1))
    ends = [3, 3, 3, 7, 7, 7, 7, 11]
    for query in range(16):
        for key in range(16):
            assert (mask[query, key] == 0) == (key < 2 * ends[query // 2]), (query, key)
    assert Blocks(25).mask(25, 25, 2, torch.zeros(1)) is None


def test_masks_matter_and_full_attention_is_another_result():
    flow = small_flow()
    streamed = flow.whole(ids_of(60), *voice_of(10), Blocks(25))
    full = flow.whole(ids_of(60), *voice_of(10), None)
    assert streamed.shape == full.shape == (120, 80)
    assert (streamed - full).abs().max() > 0.01


def test_sizes_from_names_and_the_memory_of_a_frame():
    assert FlowDims.of({"encoder_blocks": "3", "unknown": 1}).encoder_blocks == 3
    assert FlowDims().estimator_layers == 56
    assert FlowDims().bytes_per_frame() == 4.375 * 2**20


def test_weights_that_do_not_fit_are_named():
    state = flow_state()
    state["encoder_proj.bias"] = torch.zeros(79)
    with pytest.raises(NotReady, match=r"flow\.pt.*encoder_proj\.bias"):
        FlowModel.of(FLOW_DIMS, state)


def test_more_than_the_noise_holds_is_refused_in_words():
    with pytest.raises(BadInput, match="300 seconds"):
        small_flow(torch.float32).whole(ids_of(7501), *voice_of(0))


def test_an_id_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="outside"):
        small_flow().whole(torch.tensor([FLOW_DIMS.speech_token_size]), *voice_of(0))


def test_bfloat16_weights_stay_near():
    exact = small_flow(torch.float32).whole(ids_of(30), *voice_of(10), Blocks(25))
    rough = small_flow(torch.bfloat16).whole(ids_of(30), *voice_of(10), Blocks(25))
    assert rough.dtype == torch.float32
    assert (rough - exact).square().mean().sqrt() < 0.05 * exact.square().mean().sqrt()
