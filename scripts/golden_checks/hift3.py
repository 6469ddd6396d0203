"""Golden cases of the third generation's vocoder: f0, excitation, wave, pieces that are not final,
the decoder alone, the fixed noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from webui.engine.cosyvoice.vocoder import VocoderDims
from webui.engine.cosyvoice.vocoder.causal_hift import F0_AHEAD, CausalVocoder
from webui.engine.cosyvoice.vocoder.causal_stream import NoiseAt, WaveStream
from webui.engine.cosyvoice.vocoder.conv_tails import Tails
from webui.engine.cosyvoice.vocoder.fixed_noise import fixed_noise

from .flow import IO, Report, largest
from .hift import DECODE_FRAMES, relative_rms

F0_TOLERANCE, SOURCE_TOLERANCE, DECODE_TOLERANCE = 2e-3, 2e-4, 1e-5
WAVE_RMS_TOLERANCE, WAVE_MAX_TOLERANCE = 1e-3, 5e-4


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> CausalVocoder:
    dims = VocoderDims.of(json.loads((folder / "hift_config.json").read_text()))
    return CausalVocoder.of(dims, load_file(folder / "hift.safetensors"), dtype, device)


@torch.inference_mode()
def check(folder: Path, report: Report, device: str = "cpu") -> None:
    vocoder, io = load(folder, device), load_file(folder / "hift_io.safetensors")
    mel = io["mel"].to(device)
    report(
        "predictor",
        "f0",
        largest(vocoder.f0(F.pad(mel, (0, F0_AHEAD)), Tails())[None], io["f0"]),
        F0_TOLERANCE,
    )
    report(
        "predictor",
        "f0_not_final",
        largest(vocoder.f0(mel, Tails())[None], io["f0_not_final"]),
        F0_TOLERANCE,
    )
    for case in ("zero", "seeded"):
        noise = io["seeded.noise"][0] if case == "seeded" else None
        _whole(
            vocoder,
            io,
            case,
            mel,
            (lambda start, count, noise=noise: noise[start : start + count])
            if case == "seeded"
            else None,
            report,
        )
    for name in sorted(name for name in io if name.startswith("not_final_")):
        frames = int(name.removeprefix("not_final_").removesuffix(".wav"))
        wave = WaveStream(vocoder, None).push(mel[0].mT[:frames])[None, : io[name].shape[1]]
        _wave(name.removesuffix(".wav"), wave, io[name], report)
    if "decode_only.wav" in io:
        report(
            "decode_only",
            "wav",
            largest(
                _decoded(vocoder, mel[..., :DECODE_FRAMES], io["zero.source"]),
                io["decode_only.wav"],
            ),
            DECODE_TOLERANCE,
        )
    if (folder / "real_model_noise_head.safetensors").exists():
        _noise(load_file(folder / "real_model_noise_head.safetensors"), report)


def _whole(
    vocoder: CausalVocoder,
    io: IO,
    case: str,
    mel: torch.Tensor,
    noise: NoiseAt | None,
    report: Report,
) -> None:
    expected = io[f"{case}.wav"]
    own = mel[..., : expected.shape[1] // vocoder.dims.frame_samples]
    f0 = vocoder.f0(F.pad(own, (0, F0_AHEAD)), Tails())
    source = vocoder.m_source(
        f0, None if noise is None else noise(0, io[f"{case}.source"].shape[2])
    )
    report(case, "source", largest(source, io[f"{case}.source"]), SOURCE_TOLERANCE)
    _wave(case, WaveStream(vocoder, noise).push(own[0].mT, final=True)[None], expected, report)


def _wave(case: str, actual: torch.Tensor, expected: torch.Tensor, report: Report) -> None:
    report(case, "wav", largest(actual, expected), WAVE_MAX_TOLERANCE)
    report(case, "wav, relative rms", relative_rms(actual, expected), WAVE_RMS_TOLERANCE)


class _Excited(WaveStream):
    """A stream whose excitation is given."""

    def __init__(self, vocoder: CausalVocoder, source: torch.Tensor):
        super().__init__(vocoder, None)
        self.source = source

    def _excite(self, final: bool) -> None:
        """It is there."""


def _decoded(vocoder: CausalVocoder, mel: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    excitation = source[0, :, : mel.shape[2] * vocoder.dims.frame_samples].to(vocoder.window)
    return _Excited(vocoder, excitation).push(mel[0].mT, final=True)[None]


def _noise(head: IO, report: Report) -> None:
    """Of the published model, whatever the sizes here."""
    report(
        "fixed_noise",
        "noise_head",
        largest(fixed_noise().at(0, head["noise_head"].shape[1])[None], head["noise_head"]),
        0.0,
    )
    report("fixed_noise", "rand_ini", largest(fixed_noise().phases, head["rand_ini"]), 0.0)
