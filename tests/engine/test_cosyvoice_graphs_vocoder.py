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
from webui.engine.cosyvoice.cuda import vocoder_work
from webui.engine.cosyvoice.cuda.vocoder import StaticVocoder, VocoderSizes
from webui.engine.cosyvoice.cuda.vocoder_work import VocoderWork, overlapped
from webui.engine.cosyvoice.cuda.windows import check, cover
from webui.engine.cosyvoice.vocoder import FULL, STEADY, ContextWindow, VocoderState
from webui.errors import EngineFault

torch.set_num_threads(1)
SIZES = VocoderSizes(batches=(1, 2, 4), slots=6)
LENGTHS = VocoderWork.lengths


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
    made = StaticVocoder(vocoder, SIZES)
    made.prewarm()
    return made


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
    wave = pushed(static.begin(seed), mel, hops)
    assert wave.shape == whole.shape
    assert relative_rms(wave, whole) < 2e-3


def test_with_more_reach_the_difference_is_rounding(vocoder, mel):
    static = StaticVocoder(
        vocoder,
        VocoderSizes(lengths=(*range(1, 33), 34, 38, 46, 62, 90, 130), batches=(1,), slots=2),
        FULL,
    )
    static.prewarm()
    assert relative_rms(pushed(static.begin(3), mel, [20, 30]), vocoder.whole(mel, 3)) < 3e-4


def test_a_window_that_both_would_choose_gives_the_same_samples(vocoder, static, mel):
    """50 frames, then 50 more: windows of 50 and 68 (here 70) frames, the same phases."""
    ours, theirs = static.begin(3), VocoderState(vocoder, 3)
    assert (ours.push(mel[:50]) - theirs.push(mel[:50])).abs().max() < 1e-5
    assert relative_rms(ours.push(mel[50:100]), theirs.push(mel[50:100])) < 1e-3
    assert (ours.emitted, ours.decoded_frames) == (theirs.emitted, 50 + 70)


@pytest.mark.parametrize("frames", [1, 2, 7, 19, 22, 23, 25, 33, 49, 64, 91, 119])
def test_every_length_of_utterance(vocoder, static, mel, frames):
    whole = vocoder.whole(mel[:frames], 1)
    stream = static.begin(1)
    first = stream.push(mel[: frames // 2])
    wave = torch.cat([first, stream.push(mel[frames // 2 : frames]), stream.push(mel[:0], True)])
    assert wave.shape == whole.shape
    assert relative_rms(wave, whole) < 4e-3


def test_nothing_to_say_and_more_than_the_longest_window(vocoder, static, mel):
    assert len(static.begin(1).push(mel[:0], True)) == 0
    long = torch.cat([mel, mel.flip(0), mel, mel, mel])
    assert relative_rms(static.begin(1).push(long, True), vocoder.whole(long, 1)) < 2e-3


def test_a_long_stream_outlives_its_ring(vocoder, static, mel):
    long = torch.cat([mel, mel.flip(0)] * 4)
    assert len(long) > 2 * static.buffers.ring
    assert relative_rms(pushed(static.begin(4), long, [50, 100, 30]), vocoder.whole(long, 4)) < 2e-3


@pytest.mark.parametrize("order", range(2))
def test_a_batch_of_streams_is_each_alone(vocoder, static, mel, order):
    dice = random.Random(order)
    running, begun, done = [], 0, 0
    static.table.played.clear()
    while running or begun < 9:
        while begun < 9 and len(running) < 4:
            running.append((static.begin(begun), mel[begun:], [0], []))
            begun += 1
        asked = []
        for stream, mine, at, _ in running:
            hop = dice.choice([50, 50, 50, 24])
            asked.append((stream, mine[at[0] : at[0] + hop], at[0] + hop >= len(mine)))
            at[0] += hop
        for samples, (stream, mine, _, out), (_, _, final) in zip(
            static.push_many(asked), list(running), asked
        ):
            out.append(samples)
            if final:
                assert relative_rms(torch.cat(out), vocoder.whole(mine, stream.seed)) < 3e-3
                stream.close()
                running = [r for r in running if r[0] is not stream]
                done += 1
    assert done == 9 and static.slots.in_use == 0
    assert any(batch > 1 for _, batch in static.table.played)


def test_a_phase_that_is_not_carried_shows(vocoder, static, mel):
    stream = static.begin(None)
    out = [stream.push(mel[:50])]
    static.buffers.cycles[stream.slot] += 0.3
    out.append(stream.push(mel[50:], True))
    assert relative_rms(torch.cat(out), vocoder.whole(mel, None)) > 0.05


def test_f0_is_computed_without_tf32_and_the_setting_put_back(static, mel, monkeypatch):
    seen = []
    elu = vocoder_work.F.elu
    monkeypatch.setattr(
        vocoder_work.F, "elu", lambda x: (seen.append(torch.backends.cudnn.allow_tf32), elu(x))[1]
    )
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    static.begin(1).push(mel[:50])
    assert seen == [False] * 5 and torch.backends.cudnn.allow_tf32


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


def test_every_utterance_is_covered_once_with_its_surroundings():
    for reach in (STEADY, ContextWindow(4, 8, 6)):
        for total in range(1, 400):
            for hop in (1, 7, 26, 50, 200):
                emitted, end = 0, 0
                while emitted < total:
                    end = min(total, end + hop)
                    for window in cover(emitted, end, end == total, reach, LENGTHS):
                        assert (
                            window.length in LENGTHS
                            and window.start >= 0
                            and window.start + window.length <= end
                        )
                        assert window.begin == emitted < window.end
                        assert window.start == 0 or window.begin - window.start >= reach.left
                        cut = window.start + window.length
                        assert cut == total or cut - window.end >= min(reach.held, reach.first_held)
                        emitted = window.end
                    assert emitted >= end - reach.held


def test_lengths_that_leave_a_gap_are_refused():
    check(LENGTHS, STEADY)
    with pytest.raises(ValueError, match="between 24 and 50"):
        check((*range(1, 23), 24, 50), STEADY)


def test_places_end_with_a_named_error(static):
    held = [static.begin() for _ in range(6)]
    with pytest.raises(EngineFault) as caught:
        static.begin()
    assert caught.value.code == "out_of_memory" and len(held) == 6


def test_serving_is_replays_and_copies(mel):
    recorder = Recorder()
    static = StaticVocoder(small_vocoder(), VocoderSizes(batches=(1, 2), slots=3), capture=recorder)
    static.prewarm()
    kept = [
        t.data_ptr()
        for t in (
            static.buffers.mels,
            static.buffers.cycles,
            static.buffers.waves,
            static.buffers.noise,
        )
    ]
    with Outside(recorder) as outside:
        streams = [static.begin(n) for n in range(2)]
        for at in (0, 50, 100):
            static.push_many([(stream, mel[at : at + 50], at == 100) for stream in streams])
    on_host = {
        "from_numpy",
        "cat",
        "zeros",
        "lift_fresh",
        "detach",
        "to",
        "resolve_conj",
        "resolve_neg",
    }  # noise in, samples out
    assert outside.seen - on_host <= {
        "select",
        "slice",
        "copy_",
        "zero_",
        "split",
        "view",
        "reshape",
        "_unsafe_view",
    }, outside.seen
    assert kept == [
        t.data_ptr()
        for t in (
            static.buffers.mels,
            static.buffers.cycles,
            static.buffers.waves,
            static.buffers.noise,
        )
    ]
