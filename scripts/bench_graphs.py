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
from webui.engine.cosyvoice.cuda.assemble import Captured, Sizes, captured
from webui.engine.cosyvoice.cuda.capture import CudaCapture, EagerCapture, Graphs
from webui.engine.cosyvoice.cuda.flow import FlowSizes, HopSizes
from webui.engine.cosyvoice.cuda.lm import CapturedLM, LmSizes
from webui.engine.cosyvoice.cuda.vocoder import VocoderSizes
from webui.engine.cosyvoice.device import DeviceConfig
from webui.engine.cosyvoice.frontend.prompt_encoder import PromptFeatures
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.sampler import Sampler
from webui.engine.cosyvoice.model import Model
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES
from webui.engine.cosyvoice.v1 import CosyVoice1
from webui.engine.cosyvoice.v3 import CosyVoice3

FEW = Sizes(
    LmSizes(slots=(1, 4), reaches=(256,), run=8),
    FlowSizes(ids=(28, 76), batches=(1,), reaches=(128,), units=200, slots=4),
    VocoderSizes(batches=(1,)),
)
IDS = 40  # drawn by each
FAMILIES = {  # a few buckets of each
    "cosyvoice1": replace(FEW, flow=HopSizes(frames=(512,), batches=(1,))),
    "cosyvoice2": FEW,
    "cosyvoice3": FEW,
}


def plain(family: str, size: str, place: DeviceConfig) -> Model:
    """Its networks as torch has them, on whatever device."""
    if family == "cosyvoice2":
        return random_model(SMALL if size == "small" else FULL, place)
    kind = {"cosyvoice1": CosyVoice1, "cosyvoice3": CosyVoice3}[family]
    with tempfile.TemporaryDirectory() as temp_dir:
        root = make(Path(temp_dir), full=size == "full", family=family)
        return kind.load(root, place)


def draw_tokens(model: Model, voice: PromptFeatures) -> tuple[list[int], torch.Tensor]:
    """Ids of one seed, and the scores behind each, (IDS, rows)"""
    lm, ids, scores = model.lm, [], []
    past, opening = (
        lm.prefix(voice.text_ids).fork(IDS),
        lm.prefill_embeddings([1, 2, 3], voice.speech_ids),
    )
    if isinstance(lm, CapturedLM):
        lm.start(opening, past, SamplingRequest(1, IDS, IDS))
        for _ in range(IDS):
            ids += lm.decode([past])[0].ids
            scores.append(lm.last[lm.rows[past].slot].clone())
        return ids, torch.stack(scores)
    sampler, last = Sampler(1, model.spec.rule, lm.dims.forbidden_ids()), lm.step(opening, past)
    for _ in range(IDS):
        ids.append(sampler(last[0], ids))
        last = lm.step_many(ids[-1:], [past])
        scores.append(last[0])
    return ids, torch.stack(scores)


def synthesise(model: Model) -> dict[str, torch.Tensor]:
    """What each network makes of the same input: ids and scores, the mel of two hops, the wave of
    that mel.
    """
    voice, hop = model.warm_prompt(), model.model_spec.first_hops[0]
    ids, scores = draw_tokens(model, voice)
    live = model.voice(voice, hop)
    while not live.is_ready:
        live.grow()
    stream, ids_fed = live.begin(seed=1), (voice.speech_ids * 4)[: 2 * hop + 10]
    mel = torch.cat(
        [
            stream.step(ids_fed[: model.hops(hop, PROFILES["balanced"]).needed(0)]),
            stream.step(ids_fed, True),
        ]
    )
    fixed = torch.randn(50, 80, generator=torch.Generator().manual_seed(4)).to(mel) - 4
    wave = model.new_wave_stream(3)
    return {
        "ids": torch.tensor(ids),
        "lm": scores,
        "flow": mel,
        "vocoder": torch.cat([wave.push(fixed), wave.push(fixed[:0], True)]),
    }


def times_ms(network: Graphs, size, device: str, times: int) -> tuple[float, float]:
    durations_ms = []
    for _ in range(times + 1):
        _wait(device)
        began = time.perf_counter()
        network(*size)
        _wait(device)
        durations_ms.append(1000 * (time.perf_counter() - began))
    return min(durations_ms[1:]), statistics.median(durations_ms[1:])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def graphs(model: Captured) -> dict[str, Graphs]:
    return {name: getattr(model, name).graphs for name in ("lm", "flow", "vocoder")}


def rows(model: Captured, device: str, times: int) -> list[dict]:
    out = []
    for name, network in graphs(model).items():
        for size in network.sizes:
            best, middle = times_ms(network, size, device, times)
            out.append(
                {
                    "network": name,
                    "bucket": [str(k) for k in size],
                    "best_ms": round(best, 3),
                    "median_ms": round(middle, 3),
                }
            )
    return out


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument(
        "--precision", choices=("fp32", "bf16", "fp16"), help="bf16 on cuda, fp32 on cpu"
    )
    parser.add_argument("--family", choices=sorted(FAMILIES), default="cosyvoice2")
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--few", action="store_true", help="a few buckets only; always so on cpu")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    place = DeviceConfig(
        args.device, args.precision or ("bf16" if args.device == "cuda" else "fp32"), "bench"
    )
    if args.device == "cpu":
        torch.set_num_threads(1)  # more only quarrel about memory
    model = plain(args.family, args.size, place)
    expected = synthesise(model)
    began = time.perf_counter()
    fast = captured(
        model,
        sizes=FAMILIES[args.family] if args.few or args.device == "cpu" else None,
        capture=CudaCapture if args.device == "cuda" else EagerCapture,
    )
    _wait(args.device)
    report = {"family": args.family, "device": args.device, "precision": place.precision,
        "size": args.size, "capture_s": round(time.perf_counter() - began, 2),
              "graphs": sum(len(network.sizes) for network in graphs(fast).values())}  # fmt: skip
    timed = rows(
        fast, args.device, args.times
    )  # first: jobs that are left would not fit every size
    actual = synthesise(fast)
    same = (actual.pop("ids") == expected.pop("ids")).long().cumprod(0).sum()  # they part for good
    report["same_ids"] = int(same)
    actual["lm"], expected["lm"] = actual["lm"][: max(1, same)], expected["lm"][: max(1, same)]
    report["agreement"] = {
        name: float(
            (actual[name].float() - expected[name].float()).abs().max()
            / expected[name].float().abs().max()
        )
        for name in expected
    }
    report["rows"] = timed
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
