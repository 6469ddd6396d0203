#!/usr/bin/env python
"""How fast the CosyVoice2 engine speaks here: one request of fixed length, voice cached, beside the published code's schedule.

    python scripts/bench_engine.py --precision fp32,bf16 --recompute      full-size random weights, made in memory
    python scripts/bench_engine.py --model-dir DIR --convert              a model directory, with its load times
    python scripts/bench_engine.py --small --recompute                    small networks: does the script work?
    python scripts/bench_engine.py --device cuda --recompute --json bench.json

Random weights cost what real ones cost; the language model is made to give just the ids asked for. Needs torch and numpy only
(--model-dir also needs PyYAML and safetensors). --recompute runs both ways in turn, with the same weights, and prints their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.engine_bench import bare

STAND_INS = bare.allow()

import torch  # noqa: E402  after the stand-ins

from scripts.engine_bench import memory  # noqa: E402
from scripts.engine_bench.build import IDS_PER_S, load_model, random_model, random_voice  # noqa: E402
from scripts.engine_bench.ways import Run, cached, recomputed  # noqa: E402
from scripts.small_model import sizes  # noqa: E402
from webui.engine.cosyvoice.device import choose  # noqa: E402
from webui.engine.cosyvoice.flow.dims import EULER_STEPS  # noqa: E402
from webui.engine.cosyvoice.model import CosyVoice2  # noqa: E402
from webui.engine.cosyvoice.voices import LiveVoice  # noqa: E402
from webui.engine.cosyvoice.weights import convert  # noqa: E402
from webui.errors import KaikouError  # noqa: E402

WAYS = {"cached": cached, "recompute": recomputed}
WARM_IDS = 60


def networks(args: argparse.Namespace, place) -> tuple[CosyVoice2, dict]:
    """The model, and what its loading took (seconds, MB)."""
    load: dict = {"precision": place.precision}
    before = memory.rss_mb()
    if args.model_dir is None:
        began = time.perf_counter()
        model = random_model(sizes.SMALL if args.small else sizes.FULL, place)
        load["random_s"] = time.perf_counter() - began
    else:
        model, load["published_s"] = load_model(args.model_dir, place, is_published=True)
        load["published_rss_mb"] = memory.rss_mb() - before
        if args.convert:
            for name in ("llm", "flow", "hift"):
                convert(args.model_dir, name, place.precision)
        if list(args.model_dir.glob("kaikou-*.safetensors")):
            del model
            before = memory.rss_mb()
            model, load["converted_s"] = load_model(args.model_dir, place, is_published=False)
            load["converted_rss_mb"] = memory.rss_mb() - before
    load["rss_mb"] = memory.rss_mb()
    return model, load


def measure(model: CosyVoice2, args: argparse.Namespace) -> list[dict]:
    """Both ways in turn, so that what else the machine does meets both."""
    prompt = random_voice(args.prompt_seconds, model.spec.lm.speech_codes)
    began = time.perf_counter()
    voice = LiveVoice(model, prompt)
    voice_s = time.perf_counter() - began
    count = round(args.seconds * IDS_PER_S)
    runs: dict[str, list[tuple[Run, float, float]]] = {way: [] for way in (WAYS if args.recompute else ("cached",))}
    for way in runs:
        WAYS[way](model, voice, min(WARM_IDS, count), 1)
    for turn in range(args.times):
        for way, done in runs.items():
            memory.forget_peaks()
            run = WAYS[way](model, voice, count, 2 + turn)
            done.append((run, *memory.peaks_mb()))
            print(f"  {way} {turn + 1}/{args.times}: first chunk {1000 * run.first_s:.0f} ms, {run.wall_s:.1f} s for {run.audio_s:.1f} s of sound", file=sys.stderr, flush=True)
    return [row(way, model, count, voice_s, done) for way, done in runs.items()]


def row(way: str, model: CosyVoice2, count: int, voice_s: float, done: Sequence[tuple[Run, float, float]]) -> dict:
    runs = [run for run, _, _ in done]
    first = sorted(1000 * run.first_s for run in runs)
    wall, audio = sum(run.wall_s for run in runs), sum(run.audio_s for run in runs)

    def mean(stages: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: round(statistics.mean(s.get(name, 0.0) for s in stages), 4) for name in ("prefill", "tokens", "flow", "vocoder")}
    stages = mean([run.stages for run in runs])
    return {
        "variant": way, "users": 1, "steps": EULER_STEPS, "hop": model.flow.dims.chunk_size, "precision": model.place.precision,
        "first_chunk_ms_p50": statistics.median(first), "first_chunk_ms_p95": first[min(len(first) - 1, round(0.95 * len(first)))],
        "first_cpu_s": statistics.mean(r.first_cpu_s for r in runs), "cpu_s_per_audio_s": sum(r.cpu_s for r in runs) / audio,
        "rtf": wall / audio, "audio_s_per_s": audio / wall, "underruns": max(run.underruns for run in runs),
        "estimator_frames_per_frame": sum(r.computed for r in runs) / sum(r.emitted for r in runs),
        "peak_rss_mb": max(rss for _, rss, _ in done), "peak_gpu_mb": max(gpu for _, _, gpu in done),
        "lm_ids_per_s": (count - 1) / stages["tokens"] if stages["tokens"] else 0.0, "voice_s": voice_s,
        "stages_s": stages, "first_stages_s": mean([run.first_stages for run in runs]), "device": model.place.device, "runs": len(runs),
    }  # fmt: skip


def table(rows: Sequence[dict]) -> None:
    print("precision | way       | first chunk ms p50 p95 |  RTF | CPU s: first chunk, per audio s | audio s/s | ids/s | frames computed/emitted | underruns | peak RSS MB | peak GPU MB")
    for r in rows:
        print(f"{r['precision']:9} | {r['variant']:9} | {r['first_chunk_ms_p50']:13.0f} {r['first_chunk_ms_p95']:8.0f} | {r['rtf']:4.2f} | {r['first_cpu_s']:18.2f} {r['cpu_s_per_audio_s']:12.2f} | {r['audio_s_per_s']:9.2f} | {r['lm_ids_per_s']:5.1f} | "
              f"{r['estimator_frames_per_frame']:23.2f} | {r['underruns']:9d} | {r['peak_rss_mb']:11.0f} | {r['peak_gpu_mb']:11.0f}")
    for r in rows:
        whole, first = (", ".join(f"{k} {v:.2f}" for k, v in r[key].items()) for key in ("stages_s", "first_stages_s"))
        print(f"{r['precision']} {r['variant']}: seconds in the first chunk: {first}; in all: {whole}; the voice's state, once: {r['voice_s']:.2f}")


def ratios(rows: Sequence[dict]) -> list[dict]:
    out = []
    by = {(r["precision"], r["variant"]): r for r in rows}
    for precision in dict.fromkeys(r["precision"] for r in rows):
        ours, theirs = by.get((precision, "cached")), by.get((precision, "recompute"))
        if ours and theirs:
            out.append({"precision": precision, "first_chunk": theirs["first_chunk_ms_p50"] / ours["first_chunk_ms_p50"], "whole": theirs["rtf"] / ours["rtf"],
                        "first_cpu": theirs["first_cpu_s"] / ours["first_cpu_s"], "cpu": theirs["cpu_s_per_audio_s"] / ours["cpu_s_per_audio_s"],
                        "first_flow": theirs["first_stages_s"]["flow"] / ours["first_stages_s"]["flow"], "flow": theirs["stages_s"]["flow"] / ours["stages_s"]["flow"]})
            print("{precision}: the published schedule takes {first_chunk:.1f} times as long to the first chunk, {whole:.1f} times in all "
                  "({first_cpu:.1f} and {cpu:.1f} times the CPU seconds); "
                  "its flow alone {first_flow:.1f} and {flow:.1f} times".format(**out[-1]))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-dir", type=Path, help="a model directory instead of random weights in memory")
    parser.add_argument("--small", action="store_true", help="small random networks")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="cpu")
    parser.add_argument("--precision", default="fp32", help="fp32, bf16, fp16, or several with commas (default: %(default)s)")
    parser.add_argument("--recompute", action="store_true", help="also run the published code's schedule, as the baseline")
    parser.add_argument("--convert", action="store_true", help="with --model-dir: write the converted weights first, and load these too")
    parser.add_argument("--seconds", type=float, default=10, help="length of the utterance (default: %(default)s)")
    parser.add_argument("--prompt-seconds", type=float, default=5, help="length of the reference (default: %(default)s)")
    parser.add_argument("--times", type=int, default=2, help="measured runs of each way (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of torch on a CPU (default: one per core)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(args.threads or os.cpu_count() or 1)
    if STAND_INS.used:
        print(f"not here and not needed: {', '.join(sorted(STAND_INS.used))}")
    rows, loads = [], []
    try:
        for precision in args.precision.split(","):
            place = choose(args.device, precision)
            model, load = networks(args, place)
            loads.append(load)
            print(f"{place.device} {precision}, {torch.get_num_threads()} threads: " + ", ".join(f"{k} {v:.1f}" for k, v in load.items() if k != "precision"), flush=True)
            rows += measure(model, args)
            del model
    except KaikouError as fault:
        print(fault.en, file=sys.stderr)
        return 1
    print(f"{args.seconds:g} s of speech, a reference of {args.prompt_seconds:g} s, {'small' if args.small else 'full-size'} "
          f"{'random weights' if args.model_dir is None else 'weights of ' + args.model_dir.name}; {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    table(rows)
    told = ratios(rows)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "load": loads, "ratios": told}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
