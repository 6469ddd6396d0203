#!/usr/bin/env python3
"""The captured networks alone: are they the plain ones on this device, and what does one replay
cost in each bucket?

    python scripts/bench_graphs.py --device cuda
        full size, bf16
    python scripts/bench_graphs.py --device cuda --family cosyvoice3
        of another generation: cosyvoice1, cosyvoice2, cosyvoice3
    python scripts/bench_graphs.py --device cpu --size small
        the same works without graphs: a smoke test, no figures to quote

Random weights at true shapes; needs torch and numpy only. Agreement is printed first, as the
largest difference over the largest value; then one line per bucket: milliseconds per replay, best
and middle of `--times`. `--json FILE` writes the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.engine_bench.build import random_model
from scripts.make_small_model import make
from scripts.small_model.sizes import FULL, SMALL
from webui.engine.cosyvoice.cuda import assemble_v1 as first
from webui.engine.cosyvoice.cuda import assemble_v3 as third
from webui.engine.cosyvoice.cuda.assemble import Sizes, captured
from webui.engine.cosyvoice.cuda.capture import CudaCapture, EagerCapture, Table
from webui.engine.cosyvoice.cuda.flow import FlowSizes
from webui.engine.cosyvoice.cuda.hop_flow import HopSizes
from webui.engine.cosyvoice.cuda.lm import LmSizes
from webui.engine.cosyvoice.cuda.vocoder import VocoderSizes
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.model import Model
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES
from webui.engine.cosyvoice.v1 import CosyVoice1
from webui.engine.cosyvoice.v3 import CosyVoice3

FEW = Sizes(LmSizes(slots=(1, 4), reaches=(256,), run=8),
    FlowSizes(ids=(28,), batches=(1,), reaches=(128,), units=200, slots=4),
            VocoderSizes(lengths=(*range(1, 23), 24, 28, 36, 50, 70), batches=(1,),
                slots=2))  # fmt: skip
WAYS = {  # how a generation is captured, and a few buckets of it
    "cosyvoice1": (
        first.captured,
        first.Sizes(FEW.lm, HopSizes(frames=(512,), batches=(1,)), FEW.vocoder),
    ),
    "cosyvoice2": (captured, FEW),
    "cosyvoice3": (
        third.replaying,
        replace(
            FEW,
            vocoder=VocoderSizes(lengths=(*range(1, 38), 39, 43, 51, 67), batches=(1,), slots=2),
        ),
    ),
}


def plain(family: str, size: str, place: DeviceConfig) -> Model:
    """Its networks as torch has them, on whatever device."""
    if family == "cosyvoice2":
        return random_model(SMALL if size == "small" else FULL, place)
    kind = {"cosyvoice1": CosyVoice1, "cosyvoice3": CosyVoice3}[family]
    with tempfile.TemporaryDirectory() as made:
        root = make(Path(made), full=size == "full", family=family)
        return kind.load(root, place)


def spoken(model: Model) -> dict[str, torch.Tensor]:
    """What each network makes of the same input: scores behind forced ids, the mel of two hops, the
    wave of that mel.
    """
    voice, hop = model.warm_prompt(), model.model_spec.first_hops[0]
    past = model.lm.prefix(voice.text_ids).fork(200)
    scores = [model.lm.step(model.lm.prefill_embeddings([1, 2, 3], voice.speech_ids), past)]
    scores += [model.lm.step_many([i], [past]) for i in voice.speech_ids]
    live = model.voice(voice, hop)
    while not live.is_ready:
        live.grow()
    stream, ids = live.begin(seed=1), (voice.speech_ids * 4)[: 2 * hop + 10]
    mel = torch.cat(
        [
            stream.step(ids[: model.hops(hop, PROFILES["balanced"]).needed(0)]),
            stream.step(ids, True),
        ]
    )
    fixed = torch.randn(50, 80, generator=torch.Generator().manual_seed(4)).to(mel) - 4
    wave = model.new_wave_stream(3)
    return {
        "lm": torch.cat(scores),
        "flow": mel,
        "vocoder": torch.cat([wave.push(fixed), wave.push(fixed[:0], True)]),
    }


def times_ms(table: Table, key, device: str, times: int) -> tuple[float, float]:
    taken = []
    for _ in range(times + 1):
        _wait(device)
        began = time.perf_counter()
        table.play(key)
        _wait(device)
        taken.append(1000 * (time.perf_counter() - began))
    return min(taken[1:]), statistics.median(taken[1:])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def tables(model: Model) -> dict[str, Table]:
    flow = model.flow.table if model.model_spec.engine == "cosyvoice1" else model.static_flow.table
    return {"lm": model.lm.table, "flow": flow, "vocoder": model.static_vocoder.table}


def rows(model: Model, device: str, times: int) -> list[dict]:
    out = []
    for name, table in tables(model).items():
        for key in table.keys():
            best, middle = times_ms(table, key, device, times)
            out.append(
                {
                    "network": name,
                    "bucket": [str(k) for k in key],
                    "best_ms": round(best, 3),
                    "median_ms": round(middle, 3),
                }
            )
    return out


def main(given: list[str] | None = None) -> dict:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    asked.add_argument(
        "--precision", choices=("fp32", "bf16", "fp16"), help="bf16 on cuda, fp32 on cpu"
    )
    asked.add_argument("--family", choices=sorted(WAYS), default="cosyvoice2")
    asked.add_argument("--size", choices=("small", "full"), default="full")
    asked.add_argument("--few", action="store_true", help="a few buckets only; always so on cpu")
    asked.add_argument("--times", type=int, default=20)
    asked.add_argument("--json", type=Path)
    args = asked.parse_args(given)
    place = DeviceConfig(
        args.device, args.precision or ("bf16" if args.device == "cuda" else "fp32"), "bench"
    )
    if args.device == "cpu":
        torch.set_num_threads(1)  # more only quarrel about memory
    model, (way, few) = plain(args.family, args.size, place), WAYS[args.family]
    want = spoken(model)
    began = time.perf_counter()
    fast = way(
        model,
        sizes=few if args.few or args.device == "cpu" else None,
        capture=CudaCapture if args.device == "cuda" else EagerCapture,
    )
    _wait(args.device)
    report = {"family": args.family, "device": args.device, "precision": place.precision,
        "size": args.size, "capture_s": round(time.perf_counter() - began, 2),
              "graphs": sum(len(table) for table in tables(fast).values())}  # fmt: skip
    got = spoken(fast)
    report["agreement"] = {
        name: float(
            (got[name].float() - want[name].float()).abs().max() / want[name].float().abs().max()
        )
        for name in want
    }
    report["rows"] = rows(fast, args.device, args.times)
    report["peak_gpu_mb"] = (
        round(torch.cuda.max_memory_allocated() / 2**20) if args.device == "cuda" else 0
    )
    for name, value in report.items():
        if name != "rows":
            print(f"{name}: {value}")
    for row in report["rows"]:
        print(
            f"{row['network']:8} {' '.join(row['bucket']):18} {row['best_ms']:9.3f}"
            f" {row['median_ms']:9.3f} ms"
        )
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    return report


if __name__ == "__main__":
    main()
