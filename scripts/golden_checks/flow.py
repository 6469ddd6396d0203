"""Golden cases of the flow: noise, times, mu, one estimator call, mel of every case, and the
incremental cache on the same data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.flow import Blocks, CausalFlow, FlowDims, FlowModel, VoiceState
from webui.engine.cosyvoice.flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS

ESTIMATOR_TIME = 4  # the recorded call is the fifth

Report = Callable[[str, str, float, float], None]
IO = dict[str, torch.Tensor]


class Limits(NamedTuple):
    mel: float
    mu: float
    estimator: float


LIMITS = Limits(2e-4, 1e-4, 1e-4)


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest absolute difference; infinite when the shapes differ or a value is not a number."""
    a, b = a.detach().cpu(), b.detach().cpu()
    if a.shape != b.shape or not (torch.isfinite(a).all() and torch.isfinite(b).all()):
        return float("inf")
    return (a.double() - b.double()).abs().max().item() if a.numel() else 0.0


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> FlowModel:
    dims = FlowDims.of(json.loads((folder / "flow_config.json").read_text()))
    return FlowModel.of(dims, load_file(folder / "flow.safetensors"), dtype, device)


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    check_model(load(folder, device), folder, report, LIMITS, _estimator)


def check_model(
    flow: CausalFlow,
    folder: Path,
    report: Report,
    limits: Limits,
    estimator: Callable[[CausalFlow, IO, str, Report], None],
) -> None:
    """Of any generation whose blocks never change. estimator(flow, io, case, report): of the
    recorded call.
    """
    io = load_file(folder / "flow_io.safetensors")
    meta = json.loads((folder / "flow_meta.json").read_text())
    if "rand_noise_head" in io:
        head = io["rand_noise_head"]
        report(
            "constants",
            "rand_noise_head",
            largest(flow.decoder.noise[:, : head.shape[2]].mT, head),
            0.0,
        )
    if "t_span" in io:
        report("constants", "t_span", largest(flow.decoder.times, io["t_span"]), 1e-6)
    for case in meta:
        if f"{case}.mel" in io:
            _case(flow, io, case, meta[case], report, limits)
        if f"{case}.est.out" in io:
            estimator(flow, io, case, report)
    if {"stream_chunk1.mel", "stream_final.mel"} <= io.keys():
        _incremental(flow, io, meta, report, limits)


def _inputs(io: IO, case: str, case_meta: dict) -> tuple[torch.Tensor, ...]:
    return (
        io["token"][0, : case_meta["token_len"]],
        io["prompt_token"][0, : case_meta["prompt_len"]],
        io["prompt_feat"][0, : case_meta["prompt_feat_len"]],
        io["embedding"],
    )


@torch.inference_mode()
def _case(
    flow: CausalFlow, io: IO, case: str, case_meta: dict, report: Report, limits: Limits
) -> None:
    ids, prompt_ids, prompt_mel, embedding = _inputs(io, case, case_meta)
    blocks = Blocks(flow.dims.chunk_size) if case_meta["streaming"] else None
    final = case_meta["finalize"]
    if f"{case}.mu" in io:
        mu = flow.encode(torch.cat([prompt_ids, ids]).long(), final, flow.new_past(), blocks)
        report(case, "mu", largest(mu, io[f"{case}.mu"]), limits.mu)
    mel = flow.whole(ids, prompt_ids, prompt_mel, embedding, blocks, final)
    report(case, "mel", largest(mel.mT[None], io[f"{case}.mel"]), limits.mel)


@torch.inference_mode()
def _estimator(flow: FlowModel, io: IO, case: str, report: Report) -> None:
    rows, mask = estimator_call(flow, io, case)
    time = flow.decoder.estimator.time_rows(io[f"{case}.est.t"][:1].to(flow.device, flow.dtype))[0]
    out = flow.decoder.estimator(rows, time, None, mask)
    report(case, "est.out", largest(out.mT, io[f"{case}.est.out"]), LIMITS.estimator)
    report(case, "est.t", largest(flow.decoder.times[ESTIMATOR_TIME], io[f"{case}.est.t"][0]), 1e-6)


def estimator_call(flow: CausalFlow, io: IO, case: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The recorded call's rows (2, frames, 320) and mask."""
    x, mu, spks, cond = (
        io[f"{case}.est.{name}"].to(flow.device, flow.dtype) for name in ("x", "mu", "spks", "cond")
    )
    rows = torch.cat([x, mu, spks[:, :, None].expand_as(x), cond], 1).mT.contiguous()
    streaming = case.startswith("stream")
    return rows, Blocks(flow.dims.chunk_size).mask(
        0, rows.shape[1] // FRAMES_PER_ID, FRAMES_PER_ID, rows
    ) if streaming else None


def _incremental(flow: CausalFlow, io: IO, meta: dict, report: Report, limits: Limits) -> None:
    case_meta = meta["stream_final"]
    ids, prompt_ids, prompt_mel, embedding = _inputs(io, "stream_final", case_meta)
    state = VoiceState.of(flow, prompt_ids, prompt_mel, embedding).begin()
    first = state.step(ids[: meta["stream_chunk1"]["token_len"]])
    report(
        "incremental",
        "first step",
        largest(first.mT[None], io["stream_chunk1.mel"][..., : len(first)]),
        limits.mel,
    )
    n_ids = meta["stream_chunk1"]["token_len"] + len(prompt_ids) - LOOKAHEAD_IDS
    if n_ids % flow.dims.chunk_size == 0:
        report(
            "incremental",
            "frames of first step",
            abs(len(first) - io["stream_chunk1.mel"].shape[2]),
            0.0,
        )
    mel = torch.cat([first, state.step(ids, final=True)])
    report("incremental", "mel", largest(mel.mT[None], io["stream_final.mel"]), limits.mel)
