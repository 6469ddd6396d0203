"""Golden cases of the vocoder: f0, excitation with and without given noise, a cached excitation
head, the decoder alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.vocoder import Vocoder, VocoderDims

from .flow import largest

F0_TOLERANCE, SOURCE_TOLERANCE, DECODE_TOLERANCE = 5e-3, 5e-4, 1e-5
WAVE_RMS_TOLERANCE, WAVE_MAX_TOLERANCE = 2e-3, 5e-4
DECODE_FRAMES = 20

Report = Callable[[str, str, float, float], None]


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Vocoder:
    dims = VocoderDims.of(json.loads((folder / "hift_config.json").read_text()))
    return Vocoder.of(dims, load_file(folder / "hift.safetensors"), dtype, device)


def relative_rms(a: torch.Tensor, b: torch.Tensor) -> float:
    """rms of the difference over rms of b; infinite when the shapes differ or a value is not a
    number.
    """
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    if a.shape != b.shape or not (torch.isfinite(a).all() and torch.isfinite(b).all()):
        return float("inf")
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt().clamp(min=1e-12)).item()


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    check_vocoder(
        load(folder, device),
        load_file(folder / "hift_io.safetensors"),
        lambda case: None,
        report,
        device,
    )


@torch.inference_mode()
def check_vocoder(
    vocoder: Vocoder,
    io: dict[str, torch.Tensor],
    start: Callable[[str], torch.Tensor | None],
    report: Report,
    device: str,
) -> None:
    """start(case): what the excitation's phase begins with."""
    mel, frame_samples = io["mel"].to(device), vocoder.dims.frame_samples
    f0 = vocoder.f0(mel)
    report("predictor", "f0", largest(f0[None], io["f0"]), F0_TOLERANCE)
    for case in ("zero", "seeded", "cached"):
        if f"{case}.wav" not in io:
            continue
        own = mel[..., : io[f"{case}.wav"].shape[1] // frame_samples]
        noise = io["seeded.sine_noise"][0] if case == "seeded" else None
        source = vocoder.m_source(vocoder.f0(own), noise, start(case))
        if case == "cached":
            head = io["cached.cache_source"].to(device)
            source[:, :, : head.shape[2]] = head
        wave = vocoder.decode(own, source)[None]
        report(case, "source", largest(source, io[f"{case}.source"]), SOURCE_TOLERANCE)
        report(case, "wav", largest(wave, io[f"{case}.wav"]), WAVE_MAX_TOLERANCE)
        report(case, "wav, relative rms", relative_rms(wave, io[f"{case}.wav"]), WAVE_RMS_TOLERANCE)
    if "decode_only.wav" in io:
        source = io["zero.source"][..., : DECODE_FRAMES * frame_samples].to(device)
        wave = vocoder.decode(mel[..., :DECODE_FRAMES], source)[None]
        report("decode_only", "wav", largest(wave, io["decode_only.wav"]), DECODE_TOLERANCE)
