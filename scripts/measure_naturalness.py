#!/usr/bin/env python3
"""Prints how natural the voices sound. 测量音色听起来有多自然，打印成表。

    python scripts/measure_naturalness.py --wavs A B      folders of wav files of two builds, pair by pair 两个文件夹逐句对比
    python scripts/measure_naturalness.py --wavs A        one folder 只看一个文件夹

The meters are packages of their own: pip install --no-deps -r requirements-meters.txt. 测量用的依赖要单独安装。
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

# before numpy is loaded: the measuring must not take the cores of what is measured
os.environ.update(
    {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
)

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.naturalness.meters import Naturalness, read_wav  # noqa: E402
from webui.errors import BadInput, KaikouError  # noqa: E402


def wav_files(folder: Path) -> dict[str, Path]:
    """Name below the folder -> file. Raises BadInput where there is none."""
    files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*.wav"))}
    if not files:
        raise BadInput(
            f"There is no wav file in {folder}.", f"{folder} 里没有 wav 文件。", code="no_wav"
        )
    return files


def compare(folders: list[Path]) -> list[dict]:
    """DistillMOS of every file that all folders have, and of each folder; with two, what the second has more."""
    files = [wav_files(folder) for folder in folders]
    names = [name for name in files[0] if all(name in other for other in files)]
    if not names:
        raise BadInput(
            "The folders have no file name in common.",
            "两个文件夹里没有同名的文件。",
            code="no_wav",
        )
    meter = Naturalness()
    rows = []
    print(f"{'file':<44} {'A':>6} {'B':>6} {'B - A':>7}" if len(files) > 1 else f"{'file':<44} MOS")
    for name in names:
        mos = [meter.mos(read_wav(other[name])) for other in files]
        rows.append({"file": name, "mos": mos})
        print(f"{name:<44} " + figures_of(mos), flush=True)
    print()
    for language in ("zh", "en", ""):
        part = np.array([r["mos"] for r in rows if f"__{language}" in r["file"] or not language])
        if len(part):
            name = f"{language or 'all'}, {len(part)} files"
            print(f"{name + ': mean':<44} " + figures_of(part.mean(axis=0)))
            print(f"{name + ': least':<44} " + figures_of(part.min(axis=0)))
    if len(files) > 1:
        gap = np.array([r["mos"][1] - r["mos"][0] for r in rows])
        low = int(gap.argmin())
        print(
            f"B - A: mean {gap.mean():+.3f} ± {gap.std() / np.sqrt(len(gap)):.3f}, lowest {gap[low]:+.3f} ({rows[low]['file']}), "
            f"highest {gap.max():+.3f}; {(gap < 0).sum()} of {len(gap)} lower"
        )
    return rows


def figures_of(mos) -> str:
    return " ".join(f"{m:6.3f}" for m in mos) + (
        f" {mos[1] - mos[0]:+7.3f}" if len(mos) > 1 else ""
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--wavs",
        nargs="+",
        type=Path,
        required=True,
        metavar="DIR",
        help="one folder or two 一个或两个文件夹",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures 全部数字")
    args = parser.parse_args(argv)
    try:
        rows = compare(args.wavs)
    except KaikouError as e:
        print(e.en, e.zh, sep="\n", file=sys.stderr)
        return 2
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
