"""Examine a model on this machine: does it sound as published, and which settings suit this
machine?

    python scripts/doctor.py
        the model in pretrained_models that the studio would begin with
    python scripts/doctor.py DIR
        another model directory
    python scripts/doctor.py DIR --quick
        two short texts, and no choice of settings
    python scripts/doctor.py DIR --clip FILE --transcript TEXT --language en
        with a recording of your own

One line for each item. The figures are kept beside the model as kaikou-doctor.json (in the data
folder where that cannot be written), with what the model said as WAV files. Exit code 1 when an
item failed, 2 when there is no model.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from .errors import KaikouError
from .files import ASSETS, MANIFEST
from .settings import load
from .store import doctor_reports
from .store.model_files import expected_files, published_files, read_manifest

VOICES = ASSETS / "voices"
STARTERS = ("starter-en-low", "starter-zh-high")
SIGNS = {"passed": "ok     ", "warned": "notice ", "failed": "FAILED ", "skipped": "-      "}


def starter(name: str):
    """One of the voices that come with the studio, as the natural voice says its words: nearer to a
    person than the starter itself.
    """
    entry = next(
        v for v in json.loads((VOICES / "voices.json").read_text("utf-8")) if v["id"] == name
    )
    return clip(VOICES / "natural" / f"{name}.mp3", entry["transcript"], entry["language"])


def clip(path: Path, transcript: str, language: str):
    from .engine.cosyvoice.doctor.speech import Clip

    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return Clip(path.stem, samples.mean(1), rate, transcript, language)


def recogniser() -> Callable[[np.ndarray, int, str, str], float | None] | None:
    """Word error of English, where PocketSphinx is installed and the scripts are there."""
    try:
        from scripts.likeness import words

        speech_recogniser = words.Recogniser()
    except ImportError:
        return None

    def error(samples: np.ndarray, rate: int, language: str, text: str) -> float | None:
        if language != "en":
            return None
        expected = words.words_of(text)
        return words.edits(expected, speech_recogniser.words(samples, rate)) / max(1, len(expected))

    return error


def examine(root: Path, data_dir: Path, clips: list, args: argparse.Namespace) -> dict:
    """Examine, tell and keep. Raises NotReady where the directory holds no model."""
    from .engine.cosyvoice.doctor.examination import Options
    from .engine.cosyvoice.doctor.examination import examine as run
    from .engine.cosyvoice.registry import model_spec_of

    names = (root.name, *(part.name for part in root.resolve().parents))
    sounds: dict[str, bytes] = {}

    def keep(name: str, samples: np.ndarray, rate: int) -> str:
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, rate, format="WAV", subtype="PCM_16")
        sounds[f"kaikou-{name}.wav"] = buffer.getvalue()
        return f"kaikou-{name}.wav"

    models, yaml = read_manifest(MANIFEST), model_spec_of(root).yaml
    options = Options(
        expected_files(models, names, yaml),
        args.device,
        args.quick,
        keep,
        None if args.quick else recogniser(),
        published_files(models, yaml),
    )
    report = run(root, clips, options, tell)
    folder = doctor_reports.save(root, data_dir, report, sounds)
    if folder is not None:
        print(f"{report['seconds']:.0f} s. The figures are in {folder / doctor_reports.FILE}")
    return report


def tell(result) -> None:
    print(f"{result.item} {SIGNS[result.status]} {result.en}", flush=True)
    if result.status == "failed" and result.remedy_en:
        print(f"          {result.remedy_en}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--background", action="store_true", help="give way to everything, end with the caller"
    )
    parser.add_argument(
        "--data-dir", type=Path, help="for a report that finds no room beside the model"
    )
    parser.add_argument("--clip", type=Path, help="a recording of one voice, 3 to 15 s")
    parser.add_argument("--transcript", default="", help="exactly its words")
    parser.add_argument("--language", default="zh")
    args = parser.parse_args(arguments)
    if args.clip and not args.transcript:
        parser.error("--clip needs --transcript")
    if args.background:
        give_way()
    try:
        flags = ["--data-dir", str(args.data_dir)] if args.data_dir else []
        settings = load(flags)
        root = args.directory or _usual(settings)
        own = [clip(args.clip, args.transcript, args.language)] if args.clip else []
        report = examine(
            root, settings.paths.data_dir, own + [starter(name) for name in STARTERS], args
        )
    except (KaikouError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if any(r["status"] == "failed" for r in report["results"]) else 0


def give_way() -> None:
    """The lowest priority, and an end when whoever started this is gone: standard input ends
    then.
    """
    if hasattr(os, "nice"):
        os.nice(19)

    def watch() -> None:
        sys.stdin.read()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def _usual(settings) -> Path:
    from .app import first_model

    return first_model(settings).path


if __name__ == "__main__":
    sys.exit(main())
