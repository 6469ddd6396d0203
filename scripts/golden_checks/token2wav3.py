"""Golden cases of the third generation's flow and vocoder together, the published way.

Weights are those of `flow` and `hift` beside the folder.
"""

from __future__ import annotations

from pathlib import Path

import torch

from scripts.published.v3 import Token2Wav
from scripts.published.v3 import vocode as vocoded

from . import flow3, hift3
from .flow import Report, largest
from .hift import relative_rms
from .token2wav import WAVE_MAX_TOLERANCE, WAVE_RMS_TOLERANCE, compare, speak_cases

MEL_TOLERANCE = 3e-4


# oneDNN has other kernels on other processors. Their rounding moves the phase of the source, and on
# one without AVX-512 a single sample by 5.8e-3; torch's own kernels keep every sample within 6e-4.
@torch.backends.mkldnn.flags(enabled=False)
@torch.inference_mode()
def check(folder: Path, report: Report, device: str = "cpu") -> None:
    flow, vocoder = (
        flow3.load(folder.parent / "flow", device),
        hift3.load(folder.parent / "hift", device),
    )
    for io, key, chunks in speak_cases(
        folder, lambda *voice: Token2Wav(flow, vocoder, *voice), report
    ):
        if f"{key}.mel" in io:  # of the last call; earlier ones were given the beginning of it
            calls = {
                f"{key}.call{i}.mel": io[f"{key}.mel"][..., : mel.shape[2]]
                for i, (mel, _) in enumerate(chunks)
            }
            wave = vocoded(vocoder, io[f"{key}.mel"].to(device), True)[None]
            report(key, "wav of given mel", largest(wave, io[f"{key}.wav"]), WAVE_MAX_TOLERANCE)
            report(
                key,
                "wav of given mel, rms",
                relative_rms(wave, io[f"{key}.wav"]),
                WAVE_RMS_TOLERANCE,
            )
        else:
            calls = {}
        compare({**io, **calls}, key, chunks, MEL_TOLERANCE, report)
