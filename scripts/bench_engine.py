#!/usr/bin/env python
"""How fast the CosyVoice2 engine speaks here: through its two stages, for one user and for many,
beside the published code's schedule.

    python scripts/bench_engine.py --precision fp32,int8 --steps 10,5 --recompute
        full-size random weights, made in memory
    python scripts/bench_engine.py --precision int8 --users 1,2,4 --poisson 1
        many users, on this machine's CPU
    python scripts/bench_engine.py --device cuda --precision bf16 --hop 25,10 --users 1,8,32
    --poisson 1,5,10,20 --recompute --json gpu.json
    python scripts/bench_engine.py --model-dir DIR --convert
        a model directory, with its load times
    python scripts/bench_engine.py --family all --precision int8
        the five published models, random weights of their sizes on disk
    python scripts/bench_engine.py --small --recompute
        small networks: does the script work?

Random weights cost what real ones cost; the language model is made to give just the ids asked for.
Needs torch and numpy only, int8 also onnx and ONNX Runtime, --model-dir also PyYAML and
safetensors, --family all that the studio needs. int8: the language model in int8, the rest in bf16
where the processor has it. --recompute runs in turn with the first user's requests, with the same
weights; ratios are against its fp32 run, or the first there is.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.engine_bench import bare

STAND_INS = bare.allow()

import torch  # noqa: E402  after the stand-ins

from scripts.engine_bench import memory  # noqa: E402
from scripts.engine_bench.build import (  # noqa: E402
    IDS_PER_S,
    load_model,
    random_model,
    random_voice,
)
from scripts.engine_bench.rounds import Round, closed, poisson, row  # noqa: E402
from scripts.engine_bench.ways import Floor, recomputed  # noqa: E402
from scripts.small_model import sizes  # noqa: E402
from webui.engine.cosyvoice.checkpoint import convert  # noqa: E402
from webui.engine.cosyvoice.device import DeviceConfig, choose  # noqa: E402
from webui.engine.cosyvoice.scheduler.chunk_schedule import PROFILES  # noqa: E402
from webui.engine.cosyvoice.v2 import CosyVoice2  # noqa: E402
from webui.errors import KaikouError  # noqa: E402

WARM_IDS = 80
PUBLISHED = "recompute"


def networks(args: argparse.Namespace, place: DeviceConfig, steps: int) -> tuple[CosyVoice2, dict]:
    """The model, and what its loading took (seconds, MB)."""
    load: dict = {"precision": name_of(place), "steps": steps}
    before = memory.rss_mb()
    if args.model_dir is None:
        began = time.perf_counter()
        model = random_model(sizes.SMALL if args.small else sizes.FULL, place, steps=steps)
        load["random_s"] = time.perf_counter() - began
    else:
        model, load["published_s"] = load_model(
            args.model_dir, place, is_published=True, steps=steps
        )
        load["published_rss_mb"] = memory.rss_mb() - before
        if args.convert:
            for name in ("llm", "flow", "hift"):
                convert(args.model_dir, name, place.precision)
        if list(args.model_dir.glob("kaikou-*.safetensors")):
            del model
            before = memory.rss_mb()
            model, load["converted_s"] = load_model(
                args.model_dir, place, is_published=False, steps=steps
            )
            load["converted_rss_mb"] = memory.rss_mb() - before
    load["rss_mb"] = memory.rss_mb()
    return model, load


def name_of(place: DeviceConfig) -> str:
    return place.precision if place.lm == "torch" else place.lm


def served(model: CosyVoice2) -> CosyVoice2:
    """As the engine serves it: on CUDA with everything captured."""
    if model.device_config.device != "cuda":
        return model
    from webui.engine.cosyvoice.cuda.assemble import captured

    return captured(model)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(
    model: CosyVoice2, args: argparse.Namespace, steps: int, with_baseline: bool
) -> list[dict]:
    """The published schedule in turn with one user's requests, so that what else the machine does
    meets both; then the other rounds.
    """
    prompt, count = (
        random_voice(args.prompt_seconds, model.spec.lm.speech_codes),
        round(args.seconds * IDS_PER_S),
    )
    rows, fast = [], served(model)
    named = {
        "steps": steps,
        "precision": name_of(model.device_config),
        "device": model.device_config.device,
        "seconds": args.seconds,
        "profile": args.profile,
    }
    for turn, hop in enumerate(args.hop):
        floor = Floor(fast, prompt, args.profile, hop)

        def speak(seed: int, floor: Floor = floor):
            return floor.speak(count, seed)

        floor.speak(min(WARM_IDS, count), 1)
        own, baseline = Round(), Round()
        if with_baseline and not turn:
            with_all_cores(args, lambda: recomputed(model, prompt, min(WARM_IDS, count), 1))
        for n in range(args.times):
            own.add(closed(speak, 1, 1, 2 + n))
            say(
                f"  stages, hop {hop}, {n + 1}/{args.times}: first chunk"
                f" {1000 * own.runs[-1].first_s:.0f} ms, {own.runs[-1].wall_s:.1f} s for"
                f" {own.runs[-1].audio_s:.1f} s of sound"
            )
            if with_baseline and not turn:
                baseline.add(
                    with_all_cores(
                        args,
                        lambda n=n: closed(
                            lambda seed: recomputed(model, prompt, count, seed), 1, 1, 2 + n
                        ),
                    )
                )
                say(
                    f"  {PUBLISHED}, {n + 1}/{args.times}: first chunk"
                    f" {1000 * baseline.runs[-1].first_s:.0f} ms, {baseline.runs[-1].wall_s:.1f} s"
                )
        if baseline.runs:
            rows.append(
                row(
                    baseline,
                    variant=PUBLISHED,
                    users=1,
                    hop=model.flow.dims.chunk_size,
                    **named,
                )
            )
        extra = {"hop": hop, **named, "voice_s": floor.voice_s}
        for users in args.users:
            done = own if users == 1 else closed(speak, users, args.times, 100)
            rows.append(row(done, variant="stages", users=users, **extra))
            say(f"  {users} users: {summary(rows[-1])}")
        for rate in args.poisson:
            rows.append(
                row(
                    poisson(speak, rate, args.requests, 300), variant="poisson", users=rate, **extra
                )
            )
            say(f"  {rate:g} requests a second: {summary(rows[-1])}")
        floor.close()
    return rows


def with_all_cores(args: argparse.Namespace, work: Callable):
    """The published code uses every core for each of its steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(args.threads or os.cpu_count() or 1)
    try:
        return work()
    finally:
        torch.set_num_threads(before)


def summary(r: dict) -> str:
    if "rtf" not in r:
        return f"none of {r['failures']} requests ended: {r['first_failure']}"
    return (
        f"first chunk {r['first_chunk_ms_p50']:.0f} ms p50, {r['first_chunk_ms_p95']:.0f} p95; RTF"
        f" {r['rtf']:.2f}; {r['audio_s_per_s']:.2f} s of sound a second; {r['underruns']}"
        f" underruns; {r['failures']} failures"
    )


def table(rows: Sequence[dict]) -> None:
    print(
        "precision | steps | hop | variant   | users | first chunk ms p50    p95 |  RTF | audio s/s"
        " | underruns | frames computed/emitted | CPU s/audio s | peak RSS MB | peak GPU MB"
    )
    for r in (r for r in rows if "rtf" in r):
        print(
            f"{r['precision']:9} | {r['steps']:5d} | {r['hop']:3d} | {r['variant']:9} |"
            f" {r['users']:5g} | {r['first_chunk_ms_p50']:18.0f} {r['first_chunk_ms_p95']:6.0f} |"
            f" {r['rtf']:4.2f} | {r['audio_s_per_s']:9.2f} | {r['underruns']:9d} |"
            f" {r['estimator_frames_per_frame']:23.2f} | {r['cpu_s_per_audio_s']:13.2f} |"
            f" {r['peak_rss_mb']:11.0f} | {r['peak_gpu_mb']:11.0f}"
        )
    for r in (r for r in rows if "rtf" in r and r["users"] == 1 and r["variant"] != "poisson"):
        whole, first = (
            ", ".join(f"{k} {v:.2f}" for k, v in r[key].items())
            for key in ("stages_s", "first_stages_s")
        )
        print(
            f"{r['precision']} {r['steps']} steps, hop {r['hop']}, {r['variant']}: seconds in the"
            f" first chunk: {first}; in all: {whole}"
        )


def ratios(rows: Sequence[dict]) -> list[dict]:
    baselines = [r for r in rows if r["variant"] == PUBLISHED and "rtf" in r]
    if not baselines:
        return []
    baseline = next((r for r in baselines if r["precision"] == "fp32"), baselines[0])
    out = []
    for own_row in (r for r in rows if r["variant"] == "stages" and r["users"] == 1 and "rtf" in r):
        out.append(
            {
                "precision": own_row["precision"],
                "steps": own_row["steps"],
                "hop": own_row["hop"],
                "baseline": baseline["precision"],
                "first_chunk": baseline["first_chunk_ms_p50"] / own_row["first_chunk_ms_p50"],
                "whole": baseline["rtf"] / own_row["rtf"],
                "cpu": baseline["cpu_s_per_audio_s"] / own_row["cpu_s_per_audio_s"],
            }
        )
        print(
            "{precision}, {steps} steps, hop {hop}: the published schedule in {baseline} takes"
            " {first_chunk:.1f} times as long to the first chunk, {whole:.1f} times in all,"
            " {cpu:.1f} times the CPU seconds".format(**out[-1])
        )
    return out


def numbers(kind: type) -> Callable[[str], list]:
    return lambda text: [kind(part) for part in text.split(",") if part]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model-dir", type=Path, help="a model directory instead of random weights in memory"
    )
    parser.add_argument(
        "--family",
        type=numbers(str),
        default=[],
        metavar="NAME,…",
        help=(
            "published models by name, or all: load, first chunk, RTF and memory of each, one"
            " process each"
        ),
    )
    parser.add_argument("--small", action="store_true", help="small random networks")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="cpu")
    parser.add_argument(
        "--precision",
        type=numbers(str),
        default=["fp32"],
        help="fp32, bf16, fp16, int8, or several with commas (default: fp32)",
    )
    parser.add_argument(
        "--steps", type=numbers(int), default=[10], help="of the flow's solver: 10, 5 (default: 10)"
    )
    parser.add_argument(
        "--hop", type=numbers(int), default=[25], help="ids of the first hop: 25, 10 (default: 25)"
    )
    parser.add_argument("--profile", choices=sorted(PROFILES), default="balanced")
    parser.add_argument(
        "--users",
        type=numbers(int),
        default=[1],
        help="users at once, each one request after another (default: 1)",
    )
    parser.add_argument(
        "--poisson", type=numbers(float), default=[], help="requests a second that come by chance"
    )
    parser.add_argument(
        "--requests", type=int, default=20, help="of one --poisson round (default: %(default)s)"
    )
    parser.add_argument(
        "--recompute",
        action="store_true",
        help="also run the published code's schedule, as the baseline",
    )
    parser.add_argument(
        "--convert",
        action="store_true",
        help="with --model-dir: write the converted weights first, and load these too",
    )
    parser.add_argument(
        "--seconds", type=float, default=10, help="length of the utterance (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt-seconds",
        type=float,
        default=5,
        help="length of the reference (default: %(default)s)",
    )
    parser.add_argument(
        "--times", type=int, default=2, help="measured requests of each user (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="of torch in each stage on a CPU (default: chosen from the machine)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def published(args: argparse.Namespace) -> int:
    from scripts.engine_bench import published

    families = published.names()
    args.family = list(families) if args.family == ["all"] else args.family
    unknown = next((name for name in args.family if name not in families), None)
    if unknown is not None:
        print(f"no model “{unknown}”; known: {', '.join(families)}", file=sys.stderr)
        return 2
    try:
        report = published.run(args)
    except KaikouError as fault:
        print(fault.en, file=sys.stderr)
        return 1
    published.table(report["rows"])
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    return 0


def main() -> int:
    args = arguments()
    if args.family:
        return published(args)
    rows, loads = [], []
    try:
        for precision in args.precision:
            for steps in args.steps:
                place = choose(args.device, precision, args.threads)
                torch.set_num_threads(place.threads)
                model, load = networks(args, place, steps)
                loads.append(load)
                print(
                    f"{place.describe()}; {steps} steps: "
                    + ", ".join(
                        f"{k} {v:.1f}" for k, v in load.items() if k not in ("precision", "steps")
                    ),
                    flush=True,
                )
                rows += measure(model, args, steps, args.recompute and steps == args.steps[0])
                del model
                gc.collect()
    except KaikouError as fault:
        print(fault.en, file=sys.stderr)
        return 1
    if STAND_INS.used:
        print(f"not here and not needed: {', '.join(sorted(STAND_INS.used))}")
    print(
        f"{args.seconds:g} s of speech, a reference of {args.prompt_seconds:g} s, profile"
        f" {args.profile}, {'small' if args.small else 'full-size'}"
        f" {'random weights' if args.model_dir is None else 'weights of ' + args.model_dir.name};"
        f" {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    )
    table(rows)
    speed_ratios = ratios(rows)
    if args.json:
        args.json.write_text(
            json.dumps({"rows": rows, "load": loads, "ratios": speed_ratios}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
