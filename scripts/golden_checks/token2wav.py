"""Golden cases of flow and vocoder together, the published way: schedule, mel of every call, wave,
streamed and in one piece.

Weights are those of the folders `flow` and `hift` beside this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file

from scripts.published.v2 import SeamVocoder, Token2Wav, schedule

from . import flow as flow_check
from . import hift as hift_check
from .flow import largest
from .hift import relative_rms

MEL_TOLERANCE, WAVE_RMS_TOLERANCE, WAVE_MAX_TOLERANCE = 2e-4, 5e-3, 5e-3
FED_RMS_TOLERANCE, FED_MAX_TOLERANCE = 5e-3, 5e-3

Report = Callable[[str, str, float, float], None]
Made = list[
    tuple[torch.Tensor, torch.Tensor]
]  # of each call the mel given to the vocoder and the samples that came


@torch.inference_mode()
def check(folder: Path, report: Report, device: str = "cpu") -> None:
    flow, vocoder = (
        flow_check.load(folder.parent / "flow", device),
        hift_check.load(folder.parent / "hift", device),
    )
    for io, key, chunks in speak_cases(
        folder, lambda *voice: Token2Wav(flow, vocoder, *voice), report
    ):
        compare(io, key, chunks, MEL_TOLERANCE, report)
        compare_pieces(io, key, SeamVocoder(vocoder), device, report)


def speak_cases(
    folder: Path, new_token2wav: Callable[..., Token2Wav], report: Report
) -> Iterator[tuple[dict[str, torch.Tensor], str, Made]]:
    """Each case the published way: the golden tensors, the case's key in them, what was made.
    begun(prompt ids, prompt mel, vector).
    """
    io = load_file(folder / "token2wav_io.safetensors")
    meta = json.loads((folder / "token2wav_meta.json").read_text())
    for key in sorted(name.removesuffix(".wav") for name in io if name.endswith(".wav")):
        case, _, way = key.partition(".")
        ids = io[f"{case}.token"][0]
        maker = new_token2wav(
            io[f"{case}.prompt_token"][0], io[f"{case}.prompt_feat"][0], io["embedding"]
        )
        if way == "stream":
            chunks = list(maker.stream(ids))
            _schedule(key, len(ids), len(maker.voice[0]), meta.get(key), report)
        else:
            chunks = [
                maker.offline(
                    ids, float(way.removeprefix("offline_speed")) if "speed" in way else 1.0
                )
            ]
        yield io, key, chunks


def _schedule(key: str, n_ids: int, prompt_ids: int, meta: dict | None, report: Report) -> None:
    if meta:
        actual = [(call.n_ids, call.offset, call.final) for call in schedule(n_ids, prompt_ids)]
        expected = [
            (call["n_token"], call["token_offset"], call["finalize"]) for call in meta["calls"]
        ]
        report(key, "schedule", float(actual != expected), 0.0)


def compare(
    io: dict[str, torch.Tensor], key: str, chunks: Made, mel_tolerance: float, report: Report
) -> None:
    lengths = torch.tensor([len(wave) for _, wave in chunks])
    report(key, "chunk_lengths", largest(lengths, io[f"{key}.chunk_lengths"]), 0.0)
    for i, (mel, _) in enumerate(chunks):
        if f"{key}.call{i}.mel" in io:
            report(key, f"call{i}.mel", largest(mel, io[f"{key}.call{i}.mel"]), mel_tolerance)
    wave = torch.cat([wave for _, wave in chunks])[None]
    report(key, "wav", largest(wave, io[f"{key}.wav"]), WAVE_MAX_TOLERANCE)
    report(key, "wav, relative rms", relative_rms(wave, io[f"{key}.wav"]), WAVE_RMS_TOLERANCE)


def compare_pieces(
    io: dict[str, torch.Tensor], key: str, seam: SeamVocoder, device: str, report: Report
) -> None:
    """The vocoder, its caches and fades alone, fed with the golden mel of each call."""
    calls = len(io[f"{key}.chunk_lengths"])
    if not all(f"{key}.call{i}.mel" in io for i in range(calls)):
        return
    waves = [seam.push(io[f"{key}.call{i}.mel"].to(device), i == calls - 1) for i in range(calls)]
    wave = torch.cat(waves)[None]
    report(key, "wav of given mel", largest(wave, io[f"{key}.wav"]), FED_MAX_TOLERANCE)
    report(key, "wav of given mel, rms", relative_rms(wave, io[f"{key}.wav"]), FED_RMS_TOLERANCE)
