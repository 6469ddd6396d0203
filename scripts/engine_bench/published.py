"""Each published model by its name, from a directory with random weights of the real sizes: loaded,
and spoken with, as the studio does both.

One process for each model, so that none is charged for the memory of another. Needs what the studio
needs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch

from scripts.make_small_model import make
from webui.engine.cosyvoice.backend import to_backend
from webui.engine.cosyvoice.checkpoint import convert
from webui.engine.cosyvoice.device import DeviceConfig, choose
from webui.engine.cosyvoice.frontend.prompt_encoder import PromptFeatures
from webui.engine.cosyvoice.llm.interface import SamplingRequest
from webui.engine.cosyvoice.llm.token_sources import LMTokens
from webui.engine.cosyvoice.model import Model
from webui.engine.cosyvoice.model_spec import ModelSpec
from webui.engine.cosyvoice.registry import model_spec_of
from webui.store.model_files import read_manifest
from webui.types import SpeechRequest

from . import memory
from .build import forget
from .rounds import closed, row
from .ways import Floor

ROOT = Path(__file__).resolve().parents[2]
TEXT = "收到好友从远方寄来的生日礼物，那份意外的惊喜与深深的祝福，让我心中充满了甜蜜的快乐，"
FRAMES_PER_S = {22050: 22050 / 256, 24000: 50.0}
WARM_S = 3.0


def names() -> dict[str, str]:
    """As published -> generation."""
    return {
        name: model.engine
        for name, model in read_manifest(ROOT / "pretrained_models" / "MANIFEST.json").items()
    }


class WholeFloor(Floor):
    """As `Floor`, with what the model's own script feeds to its language model; the length is given
    all the same.
    """

    def sources(self, request: SpeechRequest, count: int) -> list[LMTokens]:
        model = self.model
        script = model.prompt_builder(self.voice, request)
        sampling = SamplingRequest(request.seed, count, count, model.spec.rule)
        return [
            LMTokens(
                model.lm,
                script.prefix,
                script.text(TEXT),
                script.prompt_speech,
                sampling,
                script.token_filter(),
            )
        ]


def run(args: argparse.Namespace) -> dict:
    """Rows and loads of every model asked for.

    Raises KaikouError in the process of a model that cannot be used here.
    """
    if len(args.family) == 1:
        return measure_family(args, args.family[0])
    report: dict = {"rows": [], "load": []}
    for name in args.family:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [
                    sys.executable,
                    str(ROOT / "scripts" / "bench_engine.py"),
                    *_again(args, name),
                    "--json",
                    f"{folder}/told.json",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            for key, rows in json.loads(Path(folder, "told.json").read_text()).items():
                report.setdefault(key, []).extend(rows)
    return report


def _again(args: argparse.Namespace, name: str) -> list[str]:
    numbers = {
        "--precision": args.precision,
        "--steps": args.steps,
        "--hop": args.hop,
        "--users": args.users,
    }
    flags = [
        *itertools.chain.from_iterable(
            (flag, ",".join(map(str, values))) for flag, values in numbers.items()
        ),
        *(["--small"] if args.small else []),
        *(["--convert"] if args.convert else []),
        *(["--model-dir", str(args.model_dir / name)] if args.model_dir else []),
    ]
    plain = ("device", "profile", "seconds", "prompt_seconds", "times", "threads")
    return [
        "--family",
        name,
        *flags,
        *itertools.chain.from_iterable(
            (f"--{k.replace('_', '-')}", str(getattr(args, k))) for k in plain
        ),
    ]


@contextmanager
def directory(args: argparse.Namespace, name: str):
    """That of --model-dir, else one that is made for this run."""
    if args.model_dir is not None:
        yield args.model_dir
        return
    with tempfile.TemporaryDirectory(prefix="kaikou-bench-") as folder:
        yield make(Path(folder) / name, full=not args.small, family=names()[name])


def measure_family(args: argparse.Namespace, name: str) -> dict:
    logging.getLogger("webui").setLevel(logging.WARNING)
    rows = []
    with directory(args, name) as root:
        family = model_spec_of(root)
        for precision in args.precision:
            place = choose(args.device, precision, args.threads)
            torch.set_num_threads(place.threads)
            if args.convert:
                for part in family.components:
                    convert(root, part, place.precision, family.components)
            for steps in args.steps:
                rows += _measure_speech(args, name, root, family, place, steps)
    return {
        "rows": rows,
        "load": [
            {k: r[k] for k in ("family", "precision", "load_s", "loaded_rss_mb")} for r in rows
        ],
        "ratios": [],
    }


def _measure_speech(
    args: argparse.Namespace,
    name: str,
    root: Path,
    family: ModelSpec,
    place: DeviceConfig,
    steps: int,
) -> list[dict]:
    for path in (p for p in root.iterdir() if p.suffix in (".pt", ".safetensors", ".onnx")):
        forget(path)
    before, began = memory.rss_mb(), time.perf_counter()
    model = to_backend(
        family.load(root, place, lambda share, en, zh: None, steps or family.steps[0]),
        lambda share, en, zh: None,
    )
    load = {
        "family": name,
        "load_s": time.perf_counter() - began,
        "loaded_rss_mb": memory.rss_mb() - before,
    }
    count = round(args.seconds * model.spec.ids_per_s)
    prompt, rows = clip(model, args.prompt_seconds), []
    for hop in [hop for hop in args.hop if hop in family.first_hops] or family.first_hops[:1]:
        floor = WholeFloor(model, prompt, args.profile, hop)
        floor.speak(min(count, round(WARM_S * model.spec.ids_per_s)), 1)
        for users in args.users:
            done = closed(lambda seed, floor=floor: floor.speak(count, seed), users, args.times, 2)
            named = {
                "variant": "stages",
                "users": users,
                "steps": steps or family.steps[0],
                "hop": hop,
                "precision": place.precision if place.lm == "torch" else place.lm,
                "device": place.device,
                "seconds": args.seconds,
                "profile": args.profile,
                "voice_s": floor.voice_s,
            }
            rows.append(row(done, **load, **named))
        floor.close()
    return rows


def clip(model: Model, seconds: float, seed: int = 1) -> PromptFeatures:
    """A reference of so long, with a transcript of four text ids a second."""
    random, spec = torch.Generator().manual_seed(seed), model.spec
    ids = torch.randint(
        0, spec.lm.speech_codes, (round(seconds * spec.ids_per_s),), generator=random
    ).tolist()
    text = torch.randint(0, 256, (max(1, round(4 * seconds)),), generator=random).tolist()
    mel = torch.randn(1, int(seconds * FRAMES_PER_S[spec.sample_rate]), 80, generator=random) - 4
    return PromptFeatures(tuple(text), tuple(ids), mel, torch.randn(1, 192, generator=random))


def table(rows: list[dict]) -> None:
    print(
        "model                     | precision | hop | users | load s | loaded MB | first chunk ms"
        " p50   p95 |  RTF | audio s/s | underruns | peak RSS MB"
    )
    for r in rows:
        if "rtf" not in r:
            print(
                f"{r['family']:<25} | none of {r['failures']} requests ended: {r['first_failure']}"
            )
            continue
        print(
            f"{r['family']:<25} | {r['precision']:9} | {r['hop']:3d} | {r['users']:5d} |"
            f" {r['load_s']:6.1f} | {r['loaded_rss_mb']:9.0f} | {r['first_chunk_ms_p50']:18.0f}"
            f" {r['first_chunk_ms_p95']:5.0f} | {r['rtf']:4.2f} | {r['audio_s_per_s']:9.2f} |"
            f" {r['underruns']:9d} | {r['peak_rss_mb']:11.0f}"
        )
