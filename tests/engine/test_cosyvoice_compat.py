"""The published way: golden waves, schedule, and the seams that the product path does not have."""

from __future__ import annotations

import itertools

import pytest
import torch
from safetensors.torch import load_file

from scripts.golden_checks import flow as flow_check
from scripts.golden_checks import hift as hift_check
from scripts.golden_checks import token2wav as token2wav_check
from scripts.published.v2 import Call, SeamVocoder, Token2Wav, schedule, stretch
from tests.engine.cosyvoice_small import GOLDEN
from tests.engine.test_cosyvoice_flow import exceeded

torch.set_num_threads(1)


def test_golden_subset():
    assert exceeded(token2wav_check.check, GOLDEN / "token2wav") == []


@pytest.mark.shared
def test_golden_in_full(shared_dir):
    assert exceeded(token2wav_check.check, shared_dir / "golden" / "token2wav") == []


def test_schedule_aligns_the_prompt_once_and_grows():
    assert schedule(130, 27) == [Call(51, 0, False), Call(101, 48, False), Call(130, 98, True)]
    assert schedule(20, 10) == [Call(20, 0, True)]
    assert schedule(28, 0) == [Call(28, 0, False), Call(28, 25, True)]
    assert schedule(27, 0) == [Call(27, 0, True)]
    growing = schedule(500, 50)
    assert [b.offset - a.offset for a, b in itertools.pairwise(growing)] == [
        25,
        50,
        100,
        100,
        100,
        100,
    ]
    assert schedule(500, 50) == growing


def test_speed_changes_length_by_rule():
    mel = torch.arange(10.0).repeat(1, 80, 1)
    assert stretch(mel, 1.0) is mel
    assert stretch(mel, 1.3).shape[2] == 7
    assert stretch(mel, 0.8).shape[2] == 12
    assert stretch(mel, 2.0)[0, 0].tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]


def test_the_seams_are_there_and_seeded():
    flow, vocoder = flow_check.load(GOLDEN / "flow"), hift_check.load(GOLDEN / "hift")
    io = load_file(GOLDEN / "token2wav" / "token2wav_io.safetensors")
    maker = Token2Wav(
        flow, vocoder, io["b.prompt_token"][0], io["b.prompt_feat"][0], io["embedding"]
    )
    ids = io["b.token"][0]
    calls = list(maker.stream(ids, seed=4))
    repeat_calls = list(maker.stream(ids, seed=4))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(calls, repeat_calls))
    assert sum(len(wave) for _, wave in calls) == 960 * len(ids)
    mels = torch.cat([calls[0][0], calls[1][0][:, :, 8:]], 2)
    one_shot = SeamVocoder(vocoder).push(mels, True)
    seamed = torch.cat([wave for _, wave in maker.stream(ids)])
    assert (seamed - one_shot).square().mean().sqrt() > 0.05 * one_shot.square().mean().sqrt()
