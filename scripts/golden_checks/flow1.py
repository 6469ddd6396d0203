"""First generation's flow against golden data: encoder, mu, one estimator call, mel and caches of
every case, the frames of ids.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.dims_v1 import OVERLAP_IDS, frames_of
from webui.engine.cosyvoice.flow.hop_dims import HopDims
from webui.engine.cosyvoice.flow.hop_flow import HopCache, HopFlow, Work
from webui.engine.cosyvoice.flow.hop_stream import HopVoice

from .flow import ESTIMATOR_TIME, Report, largest

MEL_TOLERANCE, MU_TOLERANCE, ENCODER_TOLERANCE, ESTIMATOR_TOLERANCE = 5e-4, 3e-4, 3e-5, 1e-4
CHUNKS = (
    "chunk1",
    "chunk2",
    "chunk3_last",
)  # each begins where the one before ended its own ids, with its cache


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> HopFlow:
    dims = HopDims.of(json.loads((folder / "flow_config.json").read_text()))
    return HopFlow.of(dims, load_file(folder / "flow.safetensors"), dtype, device)


@torch.inference_mode()
def check(folder: Path, report: Report, device: str = "cpu") -> None:
    flow, io = load(folder, device), load_file(folder / "flow_io.safetensors")
    meta = json.loads((folder / "flow_meta.json").read_text())
    if "t_span" in io:
        report("constants", "t_span", largest(flow.decoder.times, io["t_span"]), 1e-6)
    frames = meta.get("frames_of_ids", {})
    report(
        "constants",
        "frames_of_ids",
        sum(frames_of(int(ids)) != count for ids, count in frames.items()),
        0,
    )
    if "offline.encoder_proj" in io:
        ids = io["token"][0].long(), io["prompt_token"][0].long()
        report(
            "offline",
            "encoder_proj",
            largest(flow.encode(ids[1], ids[0]), io["offline.encoder_proj"]),
            ENCODER_TOLERANCE,
        )
    hop = meta["chunk1"]["token_len"] - OVERLAP_IDS if "chunk1" in meta else 0
    starts = {case: number * hop for number, case in enumerate(CHUNKS)}
    cache = None
    for case in [name for name in meta if f"{name}.mel" in io]:
        start = starts.get(case, 0)
        cache = _check_case(flow, io, case, meta[case], start, cache if start else None, report)
        if f"{case}.est.out" in io:
            _check_estimator(flow, io, case, report)


def _check_case(
    flow: HopFlow,
    io: dict[str, torch.Tensor],
    case: str,
    case_meta: dict,
    start: int,
    cache: HopCache | None,
    report: Report,
) -> HopCache:
    count = case_meta["prompt_len"]
    voice = HopVoice.of(
        flow,
        io["prompt_token"][0, :count],
        io["prompt_feat"][0, : case_meta["prompt_feat_len"]],
        io["embedding"],
    )
    ids = io["token"][0, start : start + case_meta["token_len"]].long()
    if f"{case}.mu" in io:
        report(
            case,
            "mu",
            largest(flow.mu(voice.prompt_ids, ids, len(voice.prompt_mel)), io[f"{case}.mu"]),
            MU_TOLERANCE,
        )
    work = Work(
        ids,
        voice.prompt_ids,
        voice.prompt_mel,
        voice.speaker,
        io[f"{case}.noise"].mT.contiguous(),
        cache,
    )
    ((mel, cache),) = flow.hops([work])
    report(case, "mel", largest(mel.mT[None], io[f"{case}.mel"]), MEL_TOLERANCE)
    if f"{case}.cache_out" in io:
        noise, mu = io[f"{case}.cache_out"].unbind(-1)
        report(case, "cache_out, noise", largest(cache.noise.mT, noise), 0.0)
        report(case, "cache_out, mu", largest(cache.mu.mT, mu), MU_TOLERANCE)
    return cache


def _check_estimator(flow: HopFlow, io: dict[str, torch.Tensor], case: str, report: Report) -> None:
    x, mu, t, spks, cond = (
        io[f"{case}.est.{name}"].to(flow.device, flow.dtype)
        for name in ("x", "mu", "t", "spks", "cond")
    )
    rows = torch.cat([x, mu, spks[:, :, None].expand_as(x), cond], 1).mT.contiguous()
    out = flow.decoder.estimator(rows, flow.decoder.estimator.time_rows(t[:1])[0])
    report(case, "est.out", largest(out.mT, io[f"{case}.est.out"]), ESTIMATOR_TOLERANCE)
    report(case, "est.t", largest(flow.decoder.times[ESTIMATOR_TIME], io[f"{case}.est.t"][0]), 1e-6)
