#!/usr/bin/env python3
"""The captured networks alone: are they the plain ones on this device, and what does one replay cost in each bucket?

    python scripts/bench_graphs.py --device cuda                  # full size, bf16
    python scripts/bench_graphs.py --device cpu --size small      # the same works without graphs: a smoke test, no figures to quote

Random weights at true shapes; needs torch and numpy only. Agreement is printed first, as the largest difference over the largest value;
then one line per bucket: milliseconds per replay, best and middle of `--times`. `--json FILE` writes the same.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.engine_bench.build import random_model, random_voice
from scripts.small_model.sizes import FULL, SMALL
from webui.engine.cosyvoice.device import Place
from webui.engine.cosyvoice.graphs.assemble import CapturedModel, Sizes, captured
from webui.engine.cosyvoice.graphs.capture import CudaCapture, Direct, Table
from webui.engine.cosyvoice.graphs.flow import FlowSizes
from webui.engine.cosyvoice.graphs.lm import LmSizes
from webui.engine.cosyvoice.graphs.vocoder import VocoderSizes
from webui.engine.cosyvoice.model import CosyVoice2

FEW = Sizes(LmSizes(slots=(1, 4), reaches=(256,), inputs=(64,), run=8), FlowSizes(ids=(28,), batches=(1,), reaches=(128,), units=200, slots=4),
            VocoderSizes(lengths=(*range(1, 23), 24, 28, 36, 50, 70), batches=(1,), slots=2))  # fmt: skip


def spoken(model: CosyVoice2) -> dict[str, torch.Tensor]:
    """What each network makes of the same input: scores behind forced ids, the mel of two hops, the wave of that mel."""
    voice = random_voice(1.0, model.spec.lm.speech_codes)
    past = model.lm.prefix(voice.text_ids).fork(200)
    scores = [model.lm.step(model.lm.opening([1, 2, 3], voice.speech_ids), past)]
    scores += [model.lm.step_many([i], [past]) for i in voice.speech_ids]
    live = model.begun(voice.speech_ids, voice.mel, voice.vector, store=model.place.store)
    while not live.is_ready:
        live.grow()
    stream, ids = live.begin(), random_voice(2.0, model.spec.lm.speech_codes, seed=2).speech_ids
    mel = torch.cat([stream.step(ids[:28]), stream.step(ids, True)])
    fixed = torch.randn(50, 80, generator=torch.Generator().manual_seed(4)).to(mel) - 4
    wave = model.wave(3)
    return {"lm": torch.cat(scores), "flow": mel, "vocoder": torch.cat([wave.push(fixed), wave.push(fixed[:0], True)])}


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


def rows(model: CapturedModel, device: str, times: int) -> list[dict]:
    out = []
    for name, table in (("lm", model.lm.table), ("flow", model.static_flow.table), ("vocoder", model.static_vocoder.table)):
        for key in table.keys():
            best, middle = times_ms(table, key, device, times)
            out.append({"network": name, "bucket": [str(k) for k in key], "best_ms": round(best, 3), "median_ms": round(middle, 3)})
    return out


def main(given: list[str] | None = None) -> dict:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    asked.add_argument("--precision", choices=("fp32", "bf16", "fp16"), help="bf16 on cuda, fp32 on cpu")
    asked.add_argument("--size", choices=("small", "full"), default="full")
    asked.add_argument("--few", action="store_true", help="a few buckets only; always so on cpu")
    asked.add_argument("--times", type=int, default=20)
    asked.add_argument("--json", type=Path)
    args = asked.parse_args(given)
    place = Place(args.device, args.precision or ("bf16" if args.device == "cuda" else "fp32"), "bench")
    if args.device == "cpu":
        torch.set_num_threads(1)  # more only quarrel about memory
    model = random_model(SMALL if args.size == "small" else FULL, place)
    want = spoken(model)
    began = time.perf_counter()
    few = FEW if args.few or args.device == "cpu" else None
    fast = captured(model, sizes=few, capture=CudaCapture if args.device == "cuda" else Direct)
    _wait(args.device)
    report = {"device": args.device, "precision": place.precision, "size": args.size, "capture_s": round(time.perf_counter() - began, 2),
              "graphs": sum(len(t) for t in (fast.lm.table, fast.static_flow.table, fast.static_vocoder.table))}  # fmt: skip
    got = spoken(fast)
    report["agreement"] = {name: float((got[name].float() - want[name].float()).abs().max() / want[name].float().abs().max()) for name in want}
    report["rows"] = rows(fast, args.device, args.times)
    report["peak_gpu_mb"] = round(torch.cuda.max_memory_allocated() / 2**20) if args.device == "cuda" else 0
    for name, value in report.items():
        if name != "rows":
            print(f"{name}: {value}")
    for row in report["rows"]:
        print(f"{row['network']:8} {' '.join(row['bucket']):18} {row['best_ms']:9.3f} {row['median_ms']:9.3f} ms")
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    return report


if __name__ == "__main__":
    main()
