"""The first generation's vocoder: golden numbers; a stream is the wave of one shot, start phases
are a request's own.
"""

from __future__ import annotations

import math

import pytest
import torch

from scripts.golden_checks import hift1 as hift_check
from scripts.published.v1 import HELD_FRAMES
from scripts.published.v2 import SeamVocoder
from tests.engine.cosyvoice1_small import GOLDEN1, small_vocoder
from tests.engine.test_cosyvoice_flow import exceeded
from tests.engine.test_cosyvoice_vocoder import pushed, relative_rms
from webui.engine.cosyvoice.dims_v1 import FRAME_SAMPLES
from webui.engine.cosyvoice.flow.hop_stream import PROMPT_NOISE, SPEECH_NOISE
from webui.engine.cosyvoice.random_noise import noise_at
from webui.engine.cosyvoice.vocoder import FULL, STEADY, VocoderState

torch.set_num_threads(1)
HOPS = [[20, 30, 50], [50], [20], [13, 7, 1, 41]]


@pytest.fixture(scope="module")
def vocoder():
    return small_vocoder()


@pytest.fixture(scope="module")
def mel():
    """(120, 80)"""
    return torch.randn(120, 80, generator=torch.Generator().manual_seed(4))


def test_golden_subset():
    assert exceeded(hift_check.check, GOLDEN1 / "hift") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(hift_check.check, shared_dir / "golden1" / "hift") == []


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("hops", HOPS, ids=str)
@pytest.mark.parametrize(("reach", "limit"), [(STEADY, 4e-3), (FULL, 3e-4)], ids=["steady", "full"])
def test_streamed_is_one_shot(vocoder, mel, reach, limit, hops, seed):
    whole = vocoder.whole(mel, seed)
    wave = torch.cat(pushed(VocoderState(vocoder, seed, reach), mel, hops))
    assert wave.shape == whole.shape == (FRAME_SAMPLES * len(mel),)
    assert relative_rms(wave, whole) < limit


def test_the_published_seams_are_audible_beside_that(vocoder, mel):
    """What the fades of the published code leave over, at the same hops."""
    seam, out = SeamVocoder(vocoder, None, HELD_FRAMES), []
    for at in (0, 60):
        joined = seam.joined(mel[at : at + 60].mT[None])
        out.append(seam.push(joined, at == 60))
    assert relative_rms(torch.cat(out), vocoder.whole(mel, None)) > 0.02


def test_phase_in_closed_form_is_the_sum_over_samples(vocoder):
    f0 = torch.tensor([0.0, 120.0, 121.5, 300.0, 299.0, 7.0], dtype=torch.float64)
    start = vocoder.m_source.start(5)
    rates = (
        f0.repeat_interleave(FRAME_SAMPLES)[:, None]
        * torch.arange(1, 10, dtype=torch.float64)
        / 22050
    )
    expected = 0.1 * (2 * math.pi * (rates.cumsum(0) + start)).sin()
    assert torch.allclose(vocoder.m_source.waves(f0, start), expected, atol=1e-9)
    later = vocoder.m_source.waves(f0[2:], vocoder.m_source.after(f0[:2], start))
    assert torch.allclose(later, expected[2 * FRAME_SAMPLES :], atol=1e-9)


def test_start_phases_are_drawn_once_from_the_seed(vocoder):
    start = vocoder.m_source.start(5)
    assert start[0] == 0 and start.abs().max() <= 0.5 and len(set(start.tolist())) == 9
    assert torch.equal(start, vocoder.m_source.start(5)) and not torch.equal(
        start, vocoder.m_source.start(6)
    )
    assert not vocoder.m_source.start(None).any()


def test_start_phases_are_heard(vocoder, mel):
    """Two seeds without noise differ, unlike in the later generations."""
    f0 = vocoder.f0(mel.mT[None])
    sources = [vocoder.m_source(f0, None, vocoder.m_source.start(seed)) for seed in (1, 2)]
    assert relative_rms(*sources) > 0.05


def test_hours_of_speech_keep_their_phase(vocoder):
    f0 = torch.full((1000,), 123.456, dtype=torch.float64)
    before = vocoder.m_source.start(None)
    for _ in range(30):
        before = vocoder.m_source.after(f0, before)
    assert bool((before >= 0).all()) and bool((before < 1).all())
    moved = 30 * 1000 * FRAME_SAMPLES * 123.456 / 22050
    assert before[0].item() == pytest.approx(moved % 1, abs=1e-6)


@pytest.mark.parametrize("frames", [0, 1, 2, 5, 9, 11])
def test_short_streams(vocoder, mel, frames):
    state = VocoderState(vocoder, 1)
    wave = torch.cat([state.push(mel[:frames]), state.push(mel[:0], final=True)])
    assert len(wave) == FRAME_SAMPLES * frames and torch.isfinite(wave).all()


def test_same_seed_same_samples_and_streams_do_not_meet(vocoder, mel):
    alone = torch.cat(pushed(VocoderState(vocoder, 9), mel, [50]))
    first, second, parts = VocoderState(vocoder, 9), VocoderState(vocoder, 10), []
    torch.manual_seed(77)
    for at in (0, 50, 100):
        second.push(mel[at : at + 50].flip(0))
        parts.append(first.push(mel[at : at + 50], final=at == 100))
    assert torch.equal(torch.cat(parts), alone)
    assert not torch.equal(torch.cat(pushed(VocoderState(vocoder, 10), mel, [50])), alone)


def test_a_requests_random_numbers_do_not_repeat_each_other():
    """Phases, the vocoder's noise and the flow's come from one seed and three places."""
    heads = [noise_at(5, 0, 64, 80, 64, place) for place in (0, PROMPT_NOISE, SPEECH_NOISE)]
    assert all(not torch.equal(a, b) for i, a in enumerate(heads) for b in heads[:i])


def test_bf16_blocks_keep_the_wave(vocoder, mel):
    narrow = small_vocoder().narrow(torch.bfloat16)
    assert relative_rms(narrow.whole(mel, 3), vocoder.whole(mel, 3)) < 0.08


def test_a_small_one_speaks():
    wave = small_vocoder().whole(torch.randn(20, 80, generator=torch.Generator().manual_seed(1)), 1)
    assert wave.shape == (20 * FRAME_SAMPLES,) and 0 < wave.abs().max() <= 0.99
