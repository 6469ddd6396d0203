#!/usr/bin/env python3
"""Run every golden case in a folder: `check_golden.py DIR [--only flow,hift] [--device cuda]`.

One line per tensor: case, tensor, largest error, tolerance, ok. Exit code 1 when any is exceeded,
cannot be computed, or none was found. Which generation of the model it is, and which parts there
are, is read from DIR's own files, so any folder of the same format will do, whatever its name, with
other sizes and seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import math
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

NAMES = {"1": "CosyVoice-300M", "2": "CosyVoice2", "3": "Fun-CosyVoice3"}
DIFFERENT = ("flow", "frontend", "hift", "llm", "token2wav")  # what each generation has of its own


@dataclass
class Tally:
    part: str = ""
    checked: int = 0
    failed: list[str] = field(default_factory=list)

    def report(self, case: str, tensor: str, error: float, tolerance: float) -> None:
        error = float(error)
        good = not math.isnan(error) and error <= tolerance
        self.checked += 1
        name = f"{self.part}/{case}"
        if not good:
            self.failed.append(f"{name} {tensor}")
        print(
            f"{name:<36} {tensor:<28} error {error:9.2e}  tolerance {tolerance:7.1e} "
            f" {'ok' if good else 'EXCEEDED'}"
        )

    def broke(self, why: str) -> None:
        self.failed.append(f"{self.part}: {why}")
        print(f"{self.part:<36} cannot be checked: {why}")


def generation_of(folder: Path) -> str:
    """ "1", "2" or "3": by the sizes of the networks that the configurations name, else by the
    vocoder's own weights.
    """
    sizes: set[str] = set()
    for path in folder.glob("*/*_config.json"):
        with contextlib.suppress(
            OSError, ValueError
        ):  # the check itself says what is wrong with it
            sizes |= set(json.loads(path.read_text("utf-8")))
    if sizes & {"dit_dim", "end_of_prompt_id"}:
        return "3"
    if sizes & {"text_encoder_dim", "llm_blocks"} or (
        "estimator_n_blocks" in sizes and "chunk_size" not in sizes
    ):
        return "1"
    return (
        _generation_of_vocoder(folder / "hift" / "hift.safetensors")
        if not sizes & {"chunk_size", "num_hidden_layers"}
        else "2"
    )


def _generation_of_vocoder(path: Path) -> str:
    try:
        with path.open("rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        kernel = header["conv_pre.parametrizations.weight.original1"]["shape"][-1]
    except (
        OSError,
        ValueError,
        struct.error,
        KeyError,
    ):  # the check itself says what is wrong with it
        return "2"
    return "1" if "ups.2.bias" not in header else "3" if kernel == 5 else "2"


def check_of(part: str, generation: str) -> str:
    """The module that checks a part of a generation, or "".

    What is the same in all has one without a number.
    """
    check_names = {path.stem for path in (ROOT / "scripts" / "golden_checks").glob("*.py")}
    own = part if generation == "2" or part not in DIFFERENT else part + generation
    return next((name for name in (own, part + generation) if name in check_names), "")


def parts_of(folder: Path, only: list[str], generation: str) -> dict[str, str]:
    """part -> module that checks it."""
    parts = sorted(path.name for path in folder.glob("*/"))
    check_by_part = {part: check_of(part, generation) for part in parts if not only or part in only}
    return {part: module for part, module in check_by_part.items() if module}


def run(folder: Path, only: list[str], device: str) -> Tally:
    tally = Tally()
    generation = generation_of(folder)
    parts = parts_of(folder, only, generation)
    if parts:
        print(f"golden data of {NAMES[generation]}")
    unknown = [
        path.name for path in sorted(folder.glob("*/")) if path.name not in parts and not only
    ]
    if parts and unknown:
        print(f"no checks are known for: {', '.join(unknown)}")
    for part, module in parts.items():
        tally.part = part
        before = tally.checked
        check = importlib.import_module(f"scripts.golden_checks.{module}").check
        extra = {"device": device} if "device" in inspect.signature(check).parameters else {}
        try:
            check(folder / part, tally.report, **extra)
        except (
            Exception
        ) as error:  # a damaged part must not hide the others; it is reported and fails the run
            tally.broke(
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
            continue
        if tally.checked == before:
            tally.broke("no golden tensor found")
    return tally


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument(
        "--device", default="cpu", help="cpu, cuda or mps; for the parts that can use it"
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    # the tolerances are for full fp32; matrix products already are
    torch.backends.cudnn.allow_tf32 = False
    tally = run(args.folder, [part for part in args.only.split(",") if part], args.device)
    if not tally.checked and not tally.failed:
        print(f"No golden data in {args.folder}.")
        return 1
    print(
        f"{tally.checked} tensors checked, {len(tally.failed)} not ok"
        + "".join(f"\n  {name}" for name in tally.failed)
    )
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
