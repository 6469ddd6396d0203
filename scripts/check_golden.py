#!/usr/bin/env python3
"""Run every golden case in a folder: `check_golden.py DIR [--only flow,hift] [--device cuda]`.

One line per tensor: case, tensor, largest error, tolerance, ok. Exit code 1 when any is exceeded, cannot be computed, or none was found.
Which parts there are is read from DIR's own subfolders, so any folder of the same format will do, with other sizes and seeds.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402


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
        print(f"{name:<36} {tensor:<28} error {error:9.2e}  tolerance {tolerance:7.1e}  {'ok' if good else 'EXCEEDED'}")

    def broke(self, why: str) -> None:
        self.failed.append(f"{self.part}: {why}")
        print(f"{self.part:<36} cannot be checked: {why}")


def parts_of(folder: Path, only: list[str]) -> list[str]:
    known = sorted(path.stem for path in (ROOT / "scripts" / "golden_checks").glob("*.py") if path.stem != "__init__")
    return [part for part in known if (folder / part).is_dir() and (not only or part in only)]


def run(folder: Path, only: list[str], device: str) -> Tally:
    tally = Tally()
    parts = parts_of(folder, only)
    unknown = [path.name for path in sorted(folder.glob("*/")) if path.name not in parts and not only]
    if parts and unknown:
        print(f"no checks are known for: {', '.join(unknown)}")
    for part in parts:
        tally.part = part
        before = tally.checked
        check = importlib.import_module(f"scripts.golden_checks.{part}").check
        extra = {"device": device} if "device" in inspect.signature(check).parameters else {}
        try:
            check(folder / part, tally.report, **extra)
        except Exception as error:  # a damaged part must not hide the others; it is reported and fails the run
            tally.broke(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        if tally.checked == before:
            tally.broke("no golden tensor found")
    return tally


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps; for the parts that can use it")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    torch.backends.cudnn.allow_tf32 = False  # the tolerances are for full fp32; matrix products already are
    tally = run(asked.folder, [part for part in asked.only.split(",") if part], asked.device)
    if not tally.checked and not tally.failed:
        print(f"No golden data in {asked.folder}.")
        return 1
    print(f"{tally.checked} tensors checked, {len(tally.failed)} not ok" + "".join(f"\n  {name}" for name in tally.failed))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
