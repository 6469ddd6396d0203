"""Golden cases of the third generation's flow: as flow.py, and inside one estimator call its time,
its input and its first block.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from webui.engine.cosyvoice.checkpoint_v3 import PARTS
from webui.engine.cosyvoice.flow.conv import ConvCache
from webui.engine.cosyvoice.flow.dit import ROWS_PER_BLOCK
from webui.engine.cosyvoice.flow.dit_dims import DitDims
from webui.engine.cosyvoice.flow.dit_flow import DitFlow

from .flow import ESTIMATOR_TIME, IO, Limits, Report, check_model, estimator_call, largest

LIMITS = Limits(3e-4, 1e-5, 2e-4)


def load(folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> DitFlow:
    dims = DitDims.of(json.loads((folder / "flow_config.json").read_text()))
    state = {
        key: value
        for key, value in load_file(folder / "flow.safetensors").items()
        if key not in PARTS["flow"].unused
    }
    return DitFlow.of(dims, state, dtype, device)


def check(folder: Path, report: Report, device: str = "cpu") -> None:
    check_model(load(folder, device), folder, report, LIMITS, _estimator)


def _estimator(flow: DitFlow, io: IO, case: str, report: Report) -> None:
    estimator, time = flow.decoder.estimator, flow.decoder.time_table[ESTIMATOR_TIME]
    rows, mask = estimator_call(flow, io, case)
    report(
        case,
        "est.out",
        largest(estimator(rows, time, None, mask).mT, io[f"{case}.est.out"]),
        LIMITS.estimator,
    )
    report(case, "est.t", largest(flow.decoder.times[ESTIMATOR_TIME], io[f"{case}.est.t"][0]), 1e-6)
    embedded = estimator.input_embed(rows, ConvCache())
    inside = {
        "time": estimator.time_embed(io[f"{case}.est.t"].to(flow.device)),
        "embed": embedded,
        "block0": estimator.transformer_blocks[0](
            embedded,
            time[:ROWS_PER_BLOCK],
            estimator.turn([0] * len(rows), rows.shape[1], rows),
            None,
            0,
            mask,
        ),
    }
    for name, actual in inside.items():
        if f"{case}.est.{name}" in io:
            report(case, f"est.{name}", largest(actual, io[f"{case}.est.{name}"]), LIMITS.estimator)
