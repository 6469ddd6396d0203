"""Golden cases of the flow: noise, times, mu, one estimator call, mel of every case, and the incremental cache on the same data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.flow import Blocks, FlowDims, FlowModel, VoiceState
from webui.engine.cosyvoice.flow.dims import FRAMES_PER_ID, LOOKAHEAD_IDS
from webui.engine.cosyvoice.flow.encoder import EncoderPast

MEL_TOLERANCE, MU_TOLERANCE, ESTIMATOR_TOLERANCE = 2e-4, 1e-4, 1e-4
ESTIMATOR_TIME = 4  # the recorded call is the fifth

Report = Callable[[str, str, float, float], None]


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
    flow, io = load(folder, device), load_file(folder / "flow_io.safetensors")
    meta = json.loads((folder / "flow_meta.json").read_text())
    if "rand_noise_head" in io:
        head = io["rand_noise_head"]
        report("constants", "rand_noise_head", largest(flow.decoder.noise[:, : head.shape[2]].mT, head), 0.0)
    if "t_span" in io:
        report("constants", "t_span", largest(flow.decoder.times, io["t_span"]), 1e-6)
    for case in meta:
        if f"{case}.mel" in io:
            _case(flow, io, case, meta[case], report)
        if f"{case}.est.out" in io:
            _estimator(flow, io, case, report)
    if {"stream_chunk1.mel", "stream_final.mel"} <= io.keys():
        _incremental(flow, io, meta, report)


def _inputs(io: dict[str, torch.Tensor], case: str, told: dict) -> tuple[torch.Tensor, ...]:
    return (
        io["token"][0, : told["token_len"]],
        io["prompt_token"][0, : told["prompt_len"]],
        io["prompt_feat"][0, : told["prompt_feat_len"]],
        io["embedding"],
    )


@torch.inference_mode()
def _case(flow: FlowModel, io: dict[str, torch.Tensor], case: str, told: dict, report: Report) -> None:
    ids, prompt_ids, prompt_mel, embedding = _inputs(io, case, told)
    blocks = Blocks(flow.dims.chunk_size) if told["streaming"] else None
    final = told["finalize"]
    if f"{case}.mu" in io:
        past = EncoderPast(flow.dims, flow.dtype, flow.device)
        mu = flow.encode(torch.cat([prompt_ids, ids]).long(), final, past, blocks)
        report(case, "mu", largest(mu, io[f"{case}.mu"]), MU_TOLERANCE)
    mel = flow.whole(ids, prompt_ids, prompt_mel, embedding, blocks, final)
    report(case, "mel", largest(mel.mT[None], io[f"{case}.mel"]), MEL_TOLERANCE)


@torch.inference_mode()
def _estimator(flow: FlowModel, io: dict[str, torch.Tensor], case: str, report: Report) -> None:
    x, mu, t, spks, cond = (io[f"{case}.est.{name}"].to(flow.device, flow.dtype) for name in ("x", "mu", "t", "spks", "cond"))
    rows = torch.cat([x, mu, spks[:, :, None].expand_as(x), cond], 1).mT.contiguous()
    frames = rows.shape[1]
    streaming = case.startswith("stream")
    mask = Blocks(flow.dims.chunk_size).mask(0, frames // FRAMES_PER_ID, FRAMES_PER_ID, rows) if streaming else None
    out = flow.decoder.estimator(rows, flow.decoder.estimator.time_rows(t[:1])[0], None, mask)
    report(case, "est.out", largest(out.mT, io[f"{case}.est.out"]), ESTIMATOR_TOLERANCE)
    report(case, "est.t", largest(flow.decoder.times[ESTIMATOR_TIME], io[f"{case}.est.t"][0]), 1e-6)


def _incremental(flow: FlowModel, io: dict[str, torch.Tensor], meta: dict, report: Report) -> None:
    told = meta["stream_final"]
    ids, prompt_ids, prompt_mel, embedding = _inputs(io, "stream_final", told)
    state = VoiceState.of(flow, prompt_ids, prompt_mel, embedding).begin()
    first = state.step(ids[: meta["stream_chunk1"]["token_len"]])
    report("incremental", "first step", largest(first.mT[None], io["stream_chunk1.mel"][..., : len(first)]), MEL_TOLERANCE)
    given = meta["stream_chunk1"]["token_len"] + len(prompt_ids) - LOOKAHEAD_IDS
    if given % flow.dims.chunk_size == 0:
        report("incremental", "frames of first step", abs(len(first) - io["stream_chunk1.mel"].shape[2]), 0.0)
    mel = torch.cat([first, state.step(ids, final=True)])
    report("incremental", "mel", largest(mel.mT[None], io["stream_final.mel"]), MEL_TOLERANCE)
