"""Features and text rules of the front end: golden numbers and the properties that golden clips do
not show.
"""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from scripts.golden_checks import frontend as golden_frontend
from scripts.published import text_front
from tests.conftest import ROOT
from webui.engine.cosyvoice.frontend.audio_features import (
    kaldi_fbank,
    prompt_mel,
    resample,
    whisper_log_mel,
)
from webui.engine.cosyvoice.frontend.preset_speakers import read_speakers


def test_golden(golden, within):
    golden_frontend.check(golden / "frontend", within)
    assert within.checked >= 16 and not within.exceeded


@pytest.mark.parametrize(
    "from_hz,to_hz", [(44100, 16000), (48000, 24000), (8000, 24000), (22050, 24000), (11025, 16000)]
)
def test_resampling_keeps_a_tone(from_hz, to_hz):
    def tone(rate: int) -> torch.Tensor:
        return torch.sin(2 * math.pi * 440 * torch.arange(rate) / rate)

    actual = resample(tone(from_hz), from_hz, to_hz)
    assert len(actual) == to_hz
    inner = slice(to_hz // 10, -to_hz // 10)
    assert (actual - tone(to_hz))[inner].abs().max() < 2e-3


def test_resampling_length_is_rounded_up():
    assert len(resample(torch.zeros(1001), 44100, 16000)) == math.ceil(1001 * 16000 / 44100)
    x = torch.randn(50)
    assert resample(x, 16000, 16000) is x


@pytest.mark.parametrize("n", [16000, 16159, 16160, 17003])
def test_frame_counts(n):
    x = 0.1 * torch.randn(n, generator=torch.Generator().manual_seed(0))
    assert whisper_log_mel(x).shape == (1, 128, n // 160)
    assert kaldi_fbank(x).shape == (1 + (n - 400) // 160, 80)
    assert prompt_mel(x).shape == (n // 480, 80)


def test_features_of_near_silence_are_finite():
    for feature in (whisper_log_mel, kaldi_fbank, prompt_mel):
        assert feature(torch.zeros(24000)).isfinite().all()


@pytest.mark.parametrize(
    ("fault", "is_replaced"),
    [
        ("raise OSError('libcudart')", True),
        ("raise RuntimeError('another CUDA')", True),
        ("fail_if_no_align = None", False),
        ("raise ModuleNotFoundError('torch')", None),
    ],
)
def test_torchaudio_without_its_extension(tmp_path, fault, is_replaced):
    """As its wheels behave beside a torch of another kind, with a package of that name in its
    place.
    """
    parts = {
        "__init__": "from . import _extension; _extension.fail_if_no_align",
        "_extension": fault,
        "compliance/__init__": "",
        "compliance/kaldi": "fbank = 1",
        "functional": "melscale_fbanks = 2",
        "transforms": "Resample = 3",
    }
    for name, text in parts.items():
        path = tmp_path / "torchaudio" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import logging;"
        " logging.basicConfig(level=20)\nfrom webui.engine.cosyvoice.frontend.torchaudio_functions"
        " import Resample, fbank, melscale_fbanks\nprint(fbank, melscale_fbanks, Resample,"
        " sys.modules['torchaudio._extension'].__spec__ is None)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if is_replaced is None:
        assert run.returncode and "ModuleNotFoundError" in run.stderr
    else:
        assert run.stdout.split() == ["1", "2", "3", str(is_replaced)]
        assert ("without its compiled extension" in run.stderr) == is_replaced


def test_blank_text_is_nothing_to_say():
    assert text_front.normalise("  \n ", True, len) == []


def test_huge_numbers_are_read_by_digit():
    assert text_front.number_words("1" * 60).split() == ["one"] * 60


def test_presets_and_clones_are_read(small_model):
    speakers = read_speakers(small_model)
    assert set(speakers) == {"中文女", "my_clone"}
    assert all(entry["embedding"].shape == (1, 192) for entry in speakers.values())
    assert (
        "prompt_speech_feat" in speakers["my_clone"]
        and "prompt_speech_feat" not in speakers["中文女"]
    )
