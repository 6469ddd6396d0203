"""The third generation over static buffers: flow and vocoder give what they give without, alone and
in company, from replays alone.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripts.make_small_model import make
from tests.engine import test_cosyvoice_graphs_flow as second
from tests.engine.contract import ask, whole
from tests.engine.cosyvoice3_small import small_flow, small_vocoder
from tests.engine.cosyvoice_small import ids_of, voice_of
from tests.engine.test_cosyvoice_engine import prompt, reference, shared_engine  # noqa: F401
from tests.engine.test_cosyvoice_graphs_flow import SIZES
from tests.engine.test_cosyvoice_vocoder import relative_rms
from webui.engine.cosyvoice import engine as engine_module
from webui.engine.cosyvoice.cuda import assemble
from webui.engine.cosyvoice.cuda.assemble import CapturedCosyVoice3
from webui.engine.cosyvoice.cuda.capture import EagerCapture
from webui.engine.cosyvoice.cuda.flow import CapturedFlow, FlowSizes
from webui.engine.cosyvoice.cuda.lm import LmSizes
from webui.engine.cosyvoice.cuda.vocoder import CapturedCausalVocoder, VocoderSizes
from webui.engine.cosyvoice.engine import CosyVoiceEngine
from webui.engine.cosyvoice.flow import VoiceState
from webui.engine.cosyvoice.v3 import CosyVoice3
from webui.engine.cosyvoice.vocoder.causal_stream import FADE_SAMPLES, WaveStream
from webui.engine.cosyvoice.vocoder.fixed_noise import fixed_noise

torch.set_num_threads(1)
LENGTHS = (20, 50, 86, 136)


@pytest.fixture(scope="module")
def flow():
    return small_flow(torch.float32)


@pytest.fixture(scope="module")
def static(flow):
    static_flow = CapturedFlow(flow, SIZES)
    static_flow.record()
    return static_flow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make(tmp_path_factory.mktemp("model3"), family="cosyvoice3")


# ---- flow ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("hops", "prompt", "cut"),
    [
        ([28, 25], 110, "early"),
        ([28, 50, 100], 53, "behind"),
        ([17], 0, "grid"),
        ([100], 53, "grid"),
    ],
    ids=str,
)
def test_a_stream_is_the_stream_of_the_dynamic_flow(flow, static, hops, prompt, cut):  # noqa: F811
    second.test_a_stream_is_the_stream_of_the_dynamic_flow(
        flow, static, hops=hops, prompt=prompt, cut=cut
    )


def test_what_else_the_flow_of_the_second_generation_is_asked(flow, static):
    second.test_a_prompt_mel_of_another_length_than_its_ids(flow, static, 60, 41)
    second.test_a_batch_of_different_pasts_is_each_alone(flow, static, 0)
    second.test_streams_of_a_voice_share_its_rows_and_give_theirs_back(static)


def test_positions_count_from_the_start_of_the_prompt(static):
    """A turn of the first head by the wrong position shows."""
    voice, ids = VoiceState.of(static, *voice_of(50)), ids_of(60)
    expected = voice.begin().step(ids, True)
    real = type(static.decoder.estimator).turn
    static.decoder.estimator.turn = lambda starts, count, like: real(
        static.decoder.estimator, starts * 0, count, like
    )
    try:
        assert (voice.begin().step(ids, True) - expected).abs().max() > 1e-3
    finally:
        del static.decoder.estimator.turn


def test_the_solver_is_only_replayed(flow):
    second.test_the_solver_is_only_replayed(flow)


# ---- vocoder -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def vocoder():
    return small_vocoder()


@pytest.fixture(scope="module")
def waves(vocoder):
    static_vocoder = CapturedCausalVocoder(
        vocoder, VocoderSizes(lengths=LENGTHS, batches=(1, 2, 4))
    )
    static_vocoder.record()
    return static_vocoder


@pytest.fixture(scope="module")
def mel():
    """(170, 80)"""
    return torch.randn(170, 80, generator=torch.Generator().manual_seed(3)) * 2


def plain(vocoder, mel: torch.Tensor) -> torch.Tensor:
    return WaveStream(vocoder, fixed_noise().at, FADE_SAMPLES).push(mel, True)


def pushed(stream, mel: torch.Tensor, hops: list[int]) -> torch.Tensor:
    out, at = [], 0
    for hop in itertools.cycle(hops):
        out.append(stream.push(mel[at : at + hop], at + hop >= len(mel)))
        at += hop
        if at >= len(mel):
            return torch.cat(out)


@pytest.mark.parametrize("hops", [[50], [20, 30, 100], [13, 7, 1, 41], [170]], ids=str)
def test_windows_are_the_wave_of_one_shot(vocoder, waves, mel, hops):
    expected, actual = plain(vocoder, mel), pushed(waves.stream(1), mel, hops)
    assert actual.shape == expected.shape == (480 * len(mel),)
    assert relative_rms(actual, expected) < 2e-4


def test_windows_without_their_past_would_show(vocoder, mel):
    """As far back as they reach they must."""
    reach = replace(CapturedCausalVocoder.reach, left=20)
    static_vocoder = CapturedCausalVocoder(vocoder, VocoderSizes((76,), (1,)), reach=reach)
    assert relative_rms(pushed(static_vocoder.stream(1), mel, [50]), plain(vocoder, mel)) > 1e-3


@pytest.mark.parametrize("frames", [1, 2, 5, 6, 7, 30, 36, 37, 50, 52, 91, 135])
def test_every_length_of_utterance(vocoder, waves, mel, frames):
    stream = waves.stream(1)
    wave = torch.cat(
        [
            stream.push(mel[: frames // 2]),
            stream.push(mel[frames // 2 : frames]),
            stream.push(mel[:0], True),
        ]
    )
    expected = plain(vocoder, mel[:frames])
    assert wave.shape == expected.shape and relative_rms(wave, expected) < 2e-4


def test_a_long_stream_outlives_its_buffers_and_company_changes_nothing(vocoder, waves, mel):
    long = torch.cat([mel, mel.flip(0)] * 2)
    assert len(long) > 2 * waves.mels.shape[1]
    waves.graphs.replayed.clear()
    dice, streams = random.Random(1), [(waves.stream(1), [0], []) for _ in range(3)]
    while streams[0][1][0] < len(long):
        hop = dice.choice([50, 100])
        calls = [
            (stream, long[at[0] : at[0] + hop], at[0] + hop >= len(long))
            for stream, at, _ in streams
        ]
        for samples, (_, at, out) in zip(waves.push_many(calls), streams):
            at[0] += hop
            out.append(samples)
    expected = plain(vocoder, long)
    assert all(relative_rms(torch.cat(out), expected) < 2e-3 for _, _, out in streams), (
        "what rounding adds to the phase in 680 frames"
    )
    assert any(batch > 1 for _, batch in waves.graphs.replayed)


# ---- the whole -----------------------------------------------------------------------------------
SMALL = assemble.Sizes(LmSizes((1, 2), (128, 512), 8),
    FlowSizes(ids=(28, 100), batches=(1,), reaches=(256,), units=900, slots=12),
                       VocoderSizes(lengths=LENGTHS, batches=(1,)))  # fmt: skip


def test_on_a_gpu_all_three_networks_are_captured(root, prompt, monkeypatch):  # noqa: F811
    """Without one: the works run directly.

    Speech is that of the plain model, and everything is given back.
    """

    def synthesise() -> np.ndarray:
        other = CosyVoiceEngine(root, precision="fp32")
        other.start()
        try:
            torch.set_num_threads(1)
            models.append(other._require_model())
            return whole(other.stream(ask(id="static"), prompt))
        finally:
            other.close()

    models: list[CosyVoice3] = []
    expected = synthesise()
    monkeypatch.setattr(
        engine_module,
        "to_backend",
        lambda model, on_progress: assemble.captured(model, on_progress, SMALL, EagerCapture),
    )
    actual = synthesise()
    assert (
        actual.shape == expected.shape
        and np.square(actual - expected).mean() < 1e-4 * np.square(expected).mean()
    )
    model = models[1]
    assert isinstance(model, CapturedCosyVoice3) and not isinstance(models[0], CapturedCosyVoice3)
    assert model.lm.graphs.replayed and model.flow.graphs.replayed and model.vocoder.graphs.replayed
    assert not model.lm.graphs.plain and not model.flow.graphs.plain


def test_sizes_follow_the_memory_that_is_free(root):
    from webui.engine.cosyvoice.device import DeviceConfig
    from webui.engine.cosyvoice.v3 import SPEC

    model = SPEC.load(
        root, DeviceConfig("cpu", "fp32", "test"), lambda share, en, zh: None, SPEC.steps[0]
    )
    sizes = [assemble.Sizes.for_memory(model, free << 20).flow for free in (600, 1 << 20)]
    assert (
        1000 <= sizes[0].units < sizes[1].units == 40000
        and 64 <= sizes[0].slots < sizes[1].slots == 512
    )
