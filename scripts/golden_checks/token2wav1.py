"""First generation's flow and vocoder together, the published way: schedule, mel of every call,
wave, streamed and in one piece.

Weights are those of the folders `flow` and `hift` beside this one.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from scripts.published.v1 import HELD_FRAMES, Token2Wav, schedule
from scripts.published.v2 import SeamVocoder

from . import flow1 as flow_check
from . import hift1 as hift_check
from .hift import Report
from .token2wav import compare, compare_pieces

MEL_TOLERANCE = 1e-3


@torch.inference_mode()
def check(folder: Path, report: Report, device: str = "cpu") -> None:
    flow = flow_check.load(folder.parent / "flow", device)
    vocoder = hift_check.load(folder.parent / "hift", device)
    io = load_file(folder / "token2wav_io.safetensors")
    meta = json.loads((folder / "token2wav_meta.json").read_text())
    for key in sorted(name.removesuffix(".wav") for name in io if name.endswith(".wav")):
        case, _, way = key.partition(".")
        ids = io[f"{case}.token"][0]

        def noise(call: int, frames: int, key: str = key) -> torch.Tensor:
            return io[f"{key}.call{call}.noise"].mT.contiguous()

        maker = Token2Wav(
            flow,
            vocoder,
            io[f"{case}.prompt_token"][0],
            io[f"{case}.prompt_feat"][0],
            io["embedding"],
            noise,
        )
        if way == "stream":
            chunks = list(maker.stream(ids))
            expected_calls = [(call["n_token"], call["finalize"]) for call in meta[key]["calls"]]
            report(
                key,
                "schedule",
                float([(call.n_ids, call.final) for call in schedule(len(ids))] != expected_calls),
                0.0,
            )
        else:
            chunks = [
                maker.offline(
                    ids, float(way.removeprefix("offline_speed")) if "speed" in way else 1.0
                )
            ]
        compare(io, key, chunks, MEL_TOLERANCE, report)
        compare_pieces(io, key, SeamVocoder(vocoder, n_held=HELD_FRAMES), device, report)
