"""First generation's vocoder against golden data: as the other ones, from given phases."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.vocoder.hift_v1 import VocoderV1, dims_of

from .hift import Report, check_vocoder


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> VocoderV1:
    return VocoderV1.of(
        dims_of(json.loads((folder / "hift_config.json").read_text())),
        load_file(folder / "hift.safetensors"),
        dtype,
        device,
    )


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    io = load_file(folder / "hift_io.safetensors")

    def phase(case: str) -> torch.Tensor | None:
        return io["seeded.phase"][0].double() / (2 * math.pi) if case == "seeded" else None

    check_vocoder(load(folder, device), io, phase, report, device)
