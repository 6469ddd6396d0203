"""The vocoder against golden data; a stream is the wave of one shot, and its noise belongs to the
utterance, not to the call.
"""

from __future__ import annotations

import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from scripts.golden_checks import hift as hift_check
from tests.engine.cosyvoice_small import GOLDEN, random_state, small_vocoder
from tests.engine.test_cosyvoice_flow import exceeded
from webui.engine.cosyvoice.vocoder import (
    FULL,
    STEADY,
    ContextWindow,
    Vocoder,
    VocoderDims,
    VocoderState,
)
from webui.engine.cosyvoice.vocoder.hift import ResBlock
from webui.engine.cosyvoice.vocoder.source import cycles_per_frame, noise_at, sines
from webui.errors import NotReady

torch.set_num_threads(1)
HOPS = [[20, 30, 50], [50], [20], [13, 7, 1, 41]]


@pytest.fixture(scope="module")
def vocoder():
    return hift_check.load(GOLDEN / "hift")


@pytest.fixture(scope="module")
def mel():
    """(120, 80), from the flow, so that it is as lively as what the vocoder will get"""
    io = load_file(GOLDEN / "token2wav" / "token2wav_io.safetensors")
    return torch.cat(
        [io["b.stream.call0.mel"][0], io["b.stream.call1.mel"][0][:, 8:]], 1
    ).mT.contiguous()


def pushed(state: VocoderState, mel: torch.Tensor, hops: list[int]) -> list[torch.Tensor]:
    out, at = [], 0
    for hop in itertools.cycle(hops):
        out.append(state.push(mel[at : at + hop], final=at + hop >= len(mel)))
        at += hop
        if at >= len(mel):
            return out


def relative_rms(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt()).item()


def test_golden_subset():
    assert exceeded(hift_check.check, GOLDEN / "hift") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(hift_check.check, shared_dir / "golden" / "hift") == []


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("hops", HOPS, ids=str)
@pytest.mark.parametrize(("reach", "limit"), [(STEADY, 2e-3), (FULL, 3e-4)], ids=["steady", "full"])
def test_streamed_is_one_shot(vocoder, mel, reach, limit, hops, seed):
    whole = vocoder.whole(mel, seed)
    waves = pushed(VocoderState(vocoder, seed, reach), mel, hops)
    wave = torch.cat(waves)
    assert wave.shape == whole.shape == (480 * len(mel),)
    assert relative_rms(wave, whole) < limit


def test_a_phase_that_is_not_carried_shows(vocoder, mel):
    state = VocoderState(vocoder, None)
    out = [state.push(mel[:50])]
    state.cycles = (state.cycles + 0.3) % 1
    out.append(state.push(mel[50:], final=True))
    assert relative_rms(torch.cat(out), vocoder.whole(mel, None)) > 0.05


def test_delay_and_flush(vocoder, mel):
    state = VocoderState(vocoder, 1)
    assert len(state.push(mel[:8])) == 0
    assert state.decoded_frames == 0
    assert len(state.push(mel[8:20])) == 480 * (20 - STEADY.first_right)
    assert len(state.push(mel[20:50])) == 480 * (30 - STEADY.right + STEADY.first_right)
    assert len(state.push(mel[:0])) == 0
    assert len(state.push(mel[:0], final=True)) == 480 * STEADY.right
    with pytest.raises(ValueError, match="last call"):
        state.push(mel[:1])


@pytest.mark.parametrize("frames", [0, 1, 2, 5, 9, 11])
def test_short_streams(vocoder, mel, frames):
    state = VocoderState(vocoder, 1)
    wave = torch.cat([state.push(mel[:frames]), state.push(mel[:0], final=True)])
    assert len(wave) == 480 * frames
    assert torch.isfinite(wave).all()


def test_what_is_kept_does_not_grow(vocoder, mel):
    state = VocoderState(vocoder, 1)
    for _ in range(6):
        state.push(mel[:50])
        assert state.mel.shape[2] <= STEADY.left + STEADY.right + 5
    assert state.decoded_frames <= 1.5 * 300


def test_same_seed_same_samples_and_streams_do_not_meet(vocoder, mel):
    alone = torch.cat(pushed(VocoderState(vocoder, 9), mel, [50]))
    first, second = VocoderState(vocoder, 9), VocoderState(vocoder, 10)
    torch.manual_seed(77)
    parts = []
    for at in (0, 50, 100):
        second.push(mel[at : at + 50].flip(0))
        parts.append(first.push(mel[at : at + 50], final=at == 100))
    assert torch.equal(torch.cat(parts), alone)
    assert not torch.equal(torch.cat(pushed(VocoderState(vocoder, 10), mel, [50])), alone)


def test_noise_belongs_to_absolute_positions():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    whole = noise_at(5, 0, 30000)
    assert whole.shape == (30000, 9) and whole.dtype == torch.float32
    for start, count in ((0, 1), (4799, 2), (4800, 4800), (12345, 9999), (29999, 1), (700, 0)):
        assert torch.equal(noise_at(5, start, count), whole[start : start + count])
    assert abs(whole.mean()) < 0.01 and abs(whole.std() - 1) < 0.01
    assert not torch.equal(noise_at(6, 0, 100), whole[:100])
    assert not torch.equal(whole[:4800], whole[4800:9600])
    assert noise_at(-1, 0, 10).shape == (10, 9)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


def test_sines_follow_the_interpolated_definition():
    f0 = torch.tensor([100.0, 120.0, 0.0, 431.7, 333.3], dtype=torch.float64)
    moves = cycles_per_frame(f0)
    steps = f0[:, None] * torch.arange(1, 10) / 24000 % 1
    phase = (
        2
        * math.pi
        * torch.nn.functional.interpolate(
            steps.cumsum(0).T[None] * 480, scale_factor=480, mode="linear"
        )[0].T
    )
    whole = sines(moves, torch.zeros(9, dtype=torch.float64), True)
    assert (whole - 0.1 * phase.sin()).abs().max() < 1e-10
    later = sines(moves[2:], moves[:2].sum(0) % 1, False)
    assert (later - whole[960:]).abs().max() < 1e-10


def test_hours_later_the_phase_is_as_exact(vocoder):
    moves = cycles_per_frame(torch.full((500,), 123.456, dtype=torch.float64))
    far = (moves[0] * 180000) % 1
    assert (
        sines(moves, far, False)[240:]
        - sines(moves, torch.zeros(9, dtype=torch.float64), False)[240:]
    ).abs().max() < 0.21
    before = torch.zeros(9, dtype=torch.float64)
    for _ in range(360):
        before = (before + moves.sum(0)) % 1
    assert (before - far + 0.5).remainder(1).sub(0.5).abs().max() < 1e-8


def test_published_prefix_and_misfits(mel):
    dims = VocoderDims(16, 8)
    state = random_state(Vocoder, dims, 2)
    model = Vocoder.of(dims, {f"generator.{key}": value for key, value in state.items()})
    assert torch.equal(model.whole(mel[:10]), Vocoder.of(dims, state).whole(mel[:10]))
    del state["conv_pre.bias"]
    with pytest.raises(NotReady, match=r"hift\.pt.*conv_pre\.bias"):
        Vocoder.of(dims, state)


def test_other_sizes_run_and_reach_is_checked(mel):
    assert small_vocoder().whole(mel[:12]).shape == (5760,)
    with pytest.raises(ValueError, match="right must be"):
        ContextWindow(8, 5, 8)
    with pytest.raises(ValueError, match="halve"):
        VocoderDims(20)


@pytest.mark.parametrize(("dtype", "channels_last"), [(torch.bfloat16, 6), (torch.float32, 0)])
def test_narrow_convolutions_lie_as_the_matrix_units_want_them_and_are_the_same(
    monkeypatch, dtype, channels_last
):
    """Only then are they worth their rounding: two for each of three dilations."""
    torch.manual_seed(2)
    block, x, layouts = ResBlock(16, 7), torch.randn(1, 16, 90), []
    for snake in (*block.activations1, *block.activations2):
        torch.nn.init.constant_(snake.alpha, 1.5)
    with torch.inference_mode():
        exact = block(x.clone())
        block.narrow(dtype)
        real = torch.nn.functional.conv2d
        monkeypatch.setattr(
            "webui.engine.cosyvoice.vocoder.hift.F.conv2d",
            lambda wide, *a, **k: (
                layouts.append(wide.is_contiguous(memory_format=torch.channels_last)),
                real(wide, *a, **k),
            )[1],
        )
        actual = block(x.clone())
    assert layouts == [True] * channels_last
    assert (actual - exact).square().mean() < 1e-3 * (exact - x).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_of_the_blocks_on_another_core_makes_the_same_wave(mel, dtype):
    model, main_blocks, elsewhere = small_vocoder().narrow(dtype), [], []
    alone = pushed(VocoderState(model, seed=1), mel, [20, 30, 50])

    def count_block(block, inputs) -> None:
        (
            main_blocks if threading.current_thread() is threading.main_thread() else elsewhere
        ).append(block)

    for block in (*model.source_resblocks, *model.resblocks):
        block.register_forward_pre_hook(count_block)
    with ThreadPoolExecutor(1) as pool:
        model.beside = pool
        shared = pushed(VocoderState(model, seed=1), mel, [20, 30, 50])
    assert all(map(torch.equal, alone, shared))
    assert main_blocks[:5] == [model.resblocks[i] for i in (2, 0, 1, 5, 8)]
    assert elsewhere[:7] == [*model.source_resblocks, *model.resblocks[3:5], *model.resblocks[6:8]]


def test_when_one_half_fails_the_other_has_ended_before_anybody_hears_of_it(mel):
    model, failed, ended = small_vocoder(), threading.Event(), []

    def fail(block, inputs) -> None:
        failed.set()
        raise ZeroDivisionError

    model.resblocks[2].register_forward_pre_hook(fail)
    model.source_resblocks[2].register_forward_pre_hook(
        lambda block, inputs: ended.append(failed.wait(10))
    )
    with ThreadPoolExecutor(1) as pool:
        model.beside = pool
        with pytest.raises(ZeroDivisionError):
            VocoderState(model).push(mel, True)
        assert ended == [True]
