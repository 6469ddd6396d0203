"""The causal vocoder: golden data, pieces = one shot without computing a frame twice, and a noise
that belongs to places.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from scripts.golden_checks import hift3 as hift_check
from tests.engine.cosyvoice3_small import GOLDEN, small_vocoder
from tests.engine.test_cosyvoice_flow import exceeded
from tests.engine.test_cosyvoice_flow_cache import relative_rms
from webui.engine.cosyvoice.vocoder import VocoderDims
from webui.engine.cosyvoice.vocoder.causal_hift import CausalVocoder
from webui.engine.cosyvoice.vocoder.causal_stream import HELD_FRAMES, WaveStream
from webui.engine.cosyvoice.vocoder.fixed_noise import BLOCK, FixedNoise, fixed_noise
from webui.errors import NotReady

torch.set_num_threads(1)
HOPS = [[20, 30, 50], [50], [5], [1], [13, 7, 1, 41], [3, 1, 90]]


@pytest.fixture(scope="module")
def vocoder():
    return hift_check.load(GOLDEN / "hift")


@pytest.fixture(scope="module")
def mel():
    """(120, 80)"""
    return torch.randn(120, 80, generator=torch.Generator().manual_seed(3)) * 2


def pushed(state: WaveStream, mel: torch.Tensor, hops: list[int]) -> list[torch.Tensor]:
    out, at = [], 0
    for hop in itertools.cycle(hops):
        out.append(state.push(mel[at : at + hop], final=at + hop >= len(mel)))
        at += hop
        if at >= len(mel):
            return out


def whole(vocoder: CausalVocoder, mel: torch.Tensor, noise=None) -> torch.Tensor:
    return WaveStream(vocoder, noise).push(mel, final=True)


def test_golden_subset():
    assert exceeded(hift_check.check, GOLDEN / "hift") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(hift_check.check, shared_dir / "golden3" / "hift") == []


@pytest.mark.parametrize("noise", [None, fixed_noise().at], ids=["plain", "noise"])
@pytest.mark.parametrize("hops", HOPS, ids=str)
def test_streamed_is_one_shot(vocoder, mel, hops, noise):
    full, wave = (
        whole(vocoder, mel, noise),
        torch.cat(pushed(WaveStream(vocoder, noise), mel, hops)),
    )
    assert wave.shape == full.shape == (480 * len(mel),)
    assert relative_rms(wave, full) < 2e-4


def test_streamed_is_one_shot_to_the_last_bit_but_rounding(mel):
    """In fp64, where nothing hides behind rounding."""
    vocoder = small_vocoder(dtype=torch.float64)
    full = whole(vocoder, mel.double())
    assert all(
        (torch.cat(pushed(WaveStream(vocoder, None), mel.double(), hops)) - full).abs().max() < 1e-6
        for hops in HOPS
    )


def test_every_frame_is_computed_once(vocoder, mel):
    counts = {"conv_pre": 0, "conv_post": 0, "f0": 0}
    hooks = [
        vocoder.conv_pre.register_forward_hook(
            lambda m, x, out: counts.__setitem__("conv_pre", counts["conv_pre"] + out.shape[2])
        ),
        vocoder.conv_post.register_forward_hook(
            lambda m, x, out: counts.__setitem__("conv_post", counts["conv_post"] + out.shape[2])
        ),
        vocoder.f0_predictor.classifier.register_forward_hook(
            lambda m, x, out: counts.__setitem__("f0", counts["f0"] + out.shape[1])
        ),
    ]
    state = WaveStream(vocoder, None)
    pushed(state, mel, [13, 7, 1, 41])
    [hook.remove() for hook in hooks]
    assert (
        counts == {"conv_pre": 120, "conv_post": 120 * 120 + 1, "f0": 120}
        and state.decoded_frames == 120
    )


def test_delay_and_flush(vocoder, mel):
    state = WaveStream(vocoder, None)
    assert len(state.push(mel[:HELD_FRAMES])) == 0 and state.decoded_frames == 0
    assert len(state.push(mel[HELD_FRAMES:20])) == 480 * (20 - HELD_FRAMES) - 8
    assert len(state.push(mel[20:50])) == 480 * 30
    assert len(state.push(mel[:0])) == 0
    assert len(state.push(mel[:0], final=True)) == 480 * HELD_FRAMES + 8
    with pytest.raises(ValueError, match="last call"):
        state.push(mel[:1])


@pytest.mark.parametrize("frames", [0, 1, 2, 4, 5, 6, 9])
def test_short_streams(vocoder, mel, frames):
    state = WaveStream(vocoder, fixed_noise().at)
    wave = torch.cat([state.push(mel[:frames]), state.push(mel[:0], final=True)])
    assert len(wave) == 480 * frames and torch.isfinite(wave).all()
    assert not frames or relative_rms(wave, whole(vocoder, mel[:frames], fixed_noise().at)) < 1e-4


def test_what_is_kept_does_not_grow(vocoder, mel):
    state, sizes = WaveStream(vocoder, None), set()
    for _ in range(6):
        state.push(mel[:50])
        sizes.add(
            (
                state.mel.shape[2],
                state.source.shape[1],
                state.spectrum.shape[2],
                sum(tensor.nbytes for tensor in state.tails._tails.values()),
            )
        )
    assert len(sizes) == 1


@pytest.mark.parametrize("fault", ["phase", "tails", "source", "spectrum"])
def test_a_wrong_past_shows(vocoder, mel, fault):
    state = WaveStream(vocoder, None)
    out = [state.push(mel[:50])]
    if fault == "phase":
        state.cycles = (state.cycles + 0.3) % 1
    elif fault == "tails":
        state.tails._tails.clear()
    elif fault == "source":
        state.source = torch.zeros_like(state.source)
    else:
        state.spectrum = torch.zeros_like(state.spectrum)
    try:
        out.append(state.push(mel[50:], final=True))
    except RuntimeError:
        return  # the lengths do not even fit
    assert (torch.cat(out) - whole(vocoder, mel)).abs().max() > 1e-4


@pytest.mark.parametrize("hops", [[50], [1], [3, 1, 90]], ids=str)
def test_it_rises_from_nothing_in_the_first_samples_only(vocoder, mel, hops):
    plain, risen = (
        torch.cat(pushed(WaveStream(vocoder, None, fade), mel, hops)) for fade in (0, 480)
    )
    assert torch.equal(risen[480:], plain[480:]) and abs(risen[0]) < abs(plain[0]) / 900
    assert torch.allclose(risen[:480], plain[:480] * (torch.arange(480) + 0.5) / 480)


def test_streams_do_not_meet(vocoder, mel):
    alone = torch.cat(pushed(WaveStream(vocoder, fixed_noise().at), mel, [50]))
    first, second, parts = (
        WaveStream(vocoder, fixed_noise().at),
        WaveStream(vocoder, fixed_noise().at),
        [],
    )
    for at in (0, 50, 100):
        second.push(mel[at : at + 50].flip(0))
        parts.append(first.push(mel[at : at + 50], final=at == 100))
    assert torch.equal(torch.cat(parts), alone)


def test_noise_is_the_same_wherever_one_begins_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    noise = FixedNoise()
    far = noise.at(3 * BLOCK - 100, 300)  # not from the start
    assert (
        far.shape == (300, 9) and far.min() >= 0 and far.max() < 1 and abs(far.mean() - 0.5) < 0.05
    )
    whole = noise.at(0, 3 * BLOCK + 200)
    assert torch.equal(whole[3 * BLOCK - 100 :], far)
    for start, count in ((0, 1), (BLOCK - 1, 2), (BLOCK, BLOCK), (12345, 9999), (700, 0)):
        assert torch.equal(noise.at(start, count), whole[start : start + count])
    assert torch.equal(FixedNoise().at(BLOCK, 5), whole[BLOCK : BLOCK + 5])
    assert torch.equal(before, torch.get_rng_state())


def test_narrow_convolutions_stay_near(mel):
    vocoder = small_vocoder()
    exact = whole(vocoder, mel)
    rough = torch.cat(pushed(WaveStream(vocoder.narrow(torch.bfloat16), None), mel, [50]))
    assert 0 < relative_rms(rough, exact) < 0.25  # of a network that knows no voice


def test_misfits_are_named():
    from tests.engine.cosyvoice_small import random_state

    dims = VocoderDims(16, 8)
    state = random_state(CausalVocoder, dims, 2)
    CausalVocoder.of(dims, {f"generator.{key}": value for key, value in state.items()})
    state["conv_pre.weight"] = torch.zeros(16, 80, 7)  # as the second generation has it
    with pytest.raises(NotReady, match=r"hift\.pt.*conv_pre\.weight"):
        CausalVocoder.of(dims, state)
