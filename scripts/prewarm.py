#!/usr/bin/env python
"""Load a model, speak its warm-up sentences at every shape that serving uses, and tell how fast it
is.

    python scripts/prewarm.py
        the model in pretrained_models that the studio would begin with
    python scripts/prewarm.py DIR --convert
        first write the converted weights (once): later starts are fast

A process' warm state ends with it; what stays is on disk: converted weights, and the weights in the
page cache. The studio warms itself.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.errors import BadInput, KaikouError


def usual() -> Path:
    """The model that the studio would begin with."""
    from webui.app import first_model
    from webui.settings import load

    return first_model(load([])).path


def convert(root: Path, precision: str, lm: str) -> None:
    """Write what is not there yet, or was made from other files. lm: "torch", or "int8", a form
    that the engine writes itself when it starts. Raises NotReady, StorageFull.
    """
    from webui.engine.cosyvoice.checkpoint import convert as write
    from webui.engine.cosyvoice.registry import model_spec_of

    parts = {
        name: part
        for name, part in model_spec_of(root).components.items()
        if (name, lm) != ("llm", "int8")
    }
    for number, (name, part) in enumerate(parts.items()):
        source = part.published(root)
        if is_converted(root / part.converted(precision), root, source):
            print(f"{part.converted(precision)} is there")
            continue
        began = time.perf_counter()
        print(f"converting {name} ({number + 1} of {len(parts)}) …", flush=True)
        file = write(root, name, precision, parts)
        print(
            f"  {source} → {file.name}, {file.stat().st_size / 1e6:.0f} MB,"
            f" {time.perf_counter() - began:.1f} s"
        )


def is_converted(file: Path, root: Path, source: str) -> bool:
    import safetensors

    from webui.engine.cosyvoice.file_checks import fingerprint

    try:
        with safetensors.safe_open(file, "pt") as f:
            return (f.metadata() or {}).get("source") == fingerprint(root, source)
    except (safetensors.SafetensorError, OSError):
        return False


def warm(args: argparse.Namespace) -> dict:
    """Raises KaikouError with the reason when the model cannot be used here."""
    from webui.engine.cosyvoice.device import choose
    from webui.engine.cosyvoice.engine import CosyVoiceEngine

    if args.convert:
        place = choose(args.device, args.precision)
        convert(args.directory, place.precision, place.lm)
    engine = CosyVoiceEngine(args.directory, args.device, args.precision)
    began = time.perf_counter()
    try:
        engine.start()
        description = engine.describe()
        return {
            "start_s": time.perf_counter() - began,
            "first_chunk_ms": 1000 * engine.first_chunk_s,
            "rtf": description.rtf,
            "plan": engine.plan.describe(),
            "version": description.version,
        }
    finally:
        engine.close()


def write_down(path: Path, report: dict) -> None:
    """Raises BadInput."""
    try:
        path.write_text(json.dumps(report, indent=1))
    except OSError as error:
        raise BadInput("unwritable", path=path, reason=error.strerror or error) from error


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory",
        type=Path,
        nargs="?",
        help="model directory (default: the one the studio would begin with)",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument(
        "--precision", choices=("auto", "int8", "fp32", "bf16", "fp16"), default="auto"
    )
    parser.add_argument(
        "--convert",
        action="store_true",
        help=(
            "write converted weights beside the published ones first; needs disk: as much again in"
            " fp32, half in bf16, a third in int8"
        ),
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        args.directory = args.directory or usual()
        report = warm(args)
        if args.json:
            write_down(args.json, report)
    except KaikouError as fault:
        print(f"{fault.en}\n{fault.zh}", file=sys.stderr)
        return 1
    print(f"memory: {report['plan']}")
    print(
        f"ready after {report['start_s']:.1f} s; first chunk {report['first_chunk_ms']:.0f} ms;"
        f" real-time factor {report['rtf']:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
