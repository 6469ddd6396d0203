"""The vocoder over static windows gives the wave of one shot, however the mel comes and whoever
else is in the batch.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from safetensors.torch import load_file

from scripts.golden_checks import hift as hift_check
from tests.engine.cosyvoice_small import GOLDEN, small_vocoder
from tests.engine.test_cosyvoice_graphs_lm import Outside, Recorder
from tests.engine.test_cosyvoice_vocoder import relative_rms
from webui.engine.cosyvoice.cuda.vocoder import CapturedVocoder, VocoderSizes, overlapped
from webui.engine.cosyvoice.vocoder import FULL, VocoderState, f0

torch.set_num_threads(1)
SIZES = VocoderSizes(batches=(1, 2, 4))


@pytest.fixture(scope="module")
def vocoder():
    return hift_check.load(GOLDEN / "hift")


@pytest.fixture(scope="module")
def mel():
    """(120, 80) of a flow"""
    io = load_file(GOLDEN / "token2wav" / "token2wav_io.safetensors")
    return torch.cat(
        [io["b.stream.call0.mel"][0], io["b.stream.call1.mel"][0][:, 8:]], 1
    ).mT.contiguous()


@pytest.fixture(scope="module")
def static(vocoder):
    static_vocoder = CapturedVocoder(vocoder, SIZES)
    static_vocoder.record()
    return static_vocoder


def pushed(stream, mel: torch.Tensor, hops: list[int]) -> torch.Tensor:
    out, at = [], 0
    for hop in itertools.cycle(hops):
        out.append(stream.push(mel[at : at + hop], at + hop >= len(mel)))
        at += hop
        if at >= len(mel):
            return torch.cat(out)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("hops", [[50], [20, 30, 50], [13, 7, 1, 41], [24, 2], [120]], ids=str)
def test_a_stream_is_one_shot(vocoder, static, mel, hops, seed):
    whole = vocoder.whole(mel, seed)
    wave = pushed(static.stream(seed), mel, hops)
    assert wave.shape == whole.shape
    assert relative_rms(wave, whole) < 2e-3


def test_with_more_reach_the_difference_is_rounding(vocoder, mel):
    static = CapturedVocoder(vocoder, VocoderSizes(lengths=(46, 90), batches=(1,)), reach=FULL)
    assert relative_rms(pushed(static.stream(3), mel, [20, 30]), vocoder.whole(mel, 3)) < 3e-4


def test_a_window_that_both_would_choose_gives_the_same_samples(vocoder, static, mel):
    """50 frames, then 50 more: windows of 50 and 68 (here 70) frames, the same phases."""
    own, other = static.stream(3), VocoderState(vocoder, 3)
    assert (own.push(mel[:50]) - other.push(mel[:50])).abs().max() < 1e-5
    assert relative_rms(own.push(mel[50:100]), other.push(mel[50:100])) < 1e-3
    assert (own.emitted, own.decoded_frames) == (other.emitted, 50 + 70)


@pytest.mark.parametrize("frames", [1, 2, 7, 19, 22, 23, 25, 33, 49, 64, 91, 119])
def test_every_length_of_utterance(vocoder, static, mel, frames):
    whole = vocoder.whole(mel[:frames], 1)
    stream = static.stream(1)
    first = stream.push(mel[: frames // 2])
    wave = torch.cat([first, stream.push(mel[frames // 2 : frames]), stream.push(mel[:0], True)])
    assert wave.shape == whole.shape
    assert relative_rms(wave, whole) < 4e-3


def test_nothing_to_say_and_more_than_the_longest_window(vocoder, static, mel):
    assert len(static.stream(1).push(mel[:0], True)) == 0
    long = torch.cat([mel, mel.flip(0), mel, mel, mel])
    assert relative_rms(static.stream(1).push(long, True), vocoder.whole(long, 1)) < 2e-3


def test_a_long_stream_outlives_its_buffers(vocoder, static, mel):
    long = torch.cat([mel, mel.flip(0)] * 4)
    assert len(long) > 2 * static.mels.shape[1]
    assert (
        relative_rms(pushed(static.stream(4), long, [50, 100, 30]), vocoder.whole(long, 4)) < 2e-3
    )


@pytest.mark.parametrize("order", range(2))
def test_a_batch_of_streams_is_each_alone(vocoder, static, mel, order):
    dice = random.Random(order)
    running, n_started, done = [], 0, 0
    static.graphs.replayed.clear()
    while running or n_started < 9:
        while n_started < 9 and len(running) < 4:
            running.append((static.stream(n_started), mel[n_started:], [0], []))
            n_started += 1
        items = []
        for stream, own, at, _ in running:
            hop = dice.choice([50, 50, 50, 24])
            items.append((stream, own[at[0] : at[0] + hop], at[0] + hop >= len(own)))
            at[0] += hop
        for samples, (stream, own, _, out), (_, _, final) in zip(
            static.push_many(items), list(running), items
        ):
            out.append(samples)
            if final:
                assert relative_rms(torch.cat(out), vocoder.whole(own, stream.seed)) < 3e-3
                running = [r for r in running if r[0] is not stream]
                done += 1
    assert done == 9 and any(batch > 1 for _, batch in static.graphs.replayed)


def test_a_phase_that_is_not_carried_shows(vocoder, static, mel):
    stream = static.stream(None)
    out = [stream.push(mel[:50])]
    stream.cycles = stream.cycles + 0.3
    out.append(stream.push(mel[50:], True))
    assert relative_rms(torch.cat(out), vocoder.whole(mel, None)) > 0.05


def test_f0_is_computed_without_tf32_and_the_setting_put_back(static, mel, monkeypatch):
    tf32_flags = []
    elu = f0.F.elu
    monkeypatch.setattr(
        f0.F, "elu", lambda x: (tf32_flags.append(torch.backends.cudnn.allow_tf32), elu(x))[1]
    )
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    static.stream(1).push(mel[:50])
    assert tf32_flags == [False] * 5 and torch.backends.cudnn.allow_tf32


def test_the_inverse_transform_is_torchs():
    window = torch.hann_window(16)
    x = torch.stft(
        torch.randn(2, 480, generator=torch.Generator().manual_seed(0)),
        16,
        4,
        window=window,
        return_complex=True,
    )
    assert (overlapped(x, window) - torch.istft(x, 16, 4, window=window)).abs().max() < 1e-6


@pytest.mark.parametrize("hops", [[50], [20, 30, 50], [1, 7, 26, 200]], ids=str)
def test_windows_reach_far_enough_and_whole_hops_are_replayed(static, mel, hops, monkeypatch):
    calls, decode, reach = [], static._decode, static.reach

    def watched(length, group):
        for wave, ready, _ in group:
            end = wave.first + len(wave.mel)
            assert end - length in (0, *range(wave.start, wave.emitted - reach.left + 1))
            calls.append((length, end - ready))
        decode(length, group)

    monkeypatch.setattr(static, "_decode", watched)
    plain = static.graphs.plain.total()
    long = torch.cat([mel, mel, mel])
    pushed(static.stream(1), long, hops)
    assert {right for _, right in calls[1:-1]} <= {reach.right} and calls[0][1] == reach.first_right
    if hops == [50]:
        assert {length for length, _ in calls} <= {50, 70} and static.graphs.plain.total() == plain


def test_lengths_too_short_for_their_surroundings_are_refused(vocoder):
    with pytest.raises(ValueError, match="no window of 20"):
        CapturedVocoder(vocoder, VocoderSizes(lengths=(10, 20)))


def test_serving_is_replays_and_copies(mel):
    recorder = Recorder()
    static = CapturedVocoder(small_vocoder(), VocoderSizes(batches=(1, 2)), recorder)
    static.record()
    buffers = (static.mels, static.phases, static.waves, static.noises, static.starts)
    addresses = [t.data_ptr() for t in buffers]
    with Outside(recorder) as outside:
        streams = [static.stream(n) for n in range(2)]
        for at in (0, 50, 100):
            static.push_many([(stream, mel[at : at + 50], at == 100) for stream in streams])
    on_host = {
        "from_numpy",
        "zeros",
        "lift_fresh",
        "detach",
        "to",
        "resolve_conj",
        "resolve_neg",
    }  # noise in, samples out
    assert outside.operators - on_host <= {
        "cat",  # the frames that a stream remembers
        "clone",
        "new_zeros",
        "select",
        "slice",
        "copy_",
        "zero_",
        "split",
        "view",
        "reshape",
        "_unsafe_view",
        "unbind",
    }, outside.operators
    assert addresses == [t.data_ptr() for t in buffers] and not static.graphs.plain
