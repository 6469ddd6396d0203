#!/usr/bin/env python
"""Write a model in the form of another runtime, and compare what was written with the model.

    python scripts/export.py estimator MODEL_DIR OUT
        the velocity network of the flow as ONNX, for ONNX Runtime, TensorRT and others
    python scripts/export.py qwen2 MODEL_DIR OUT [--transformers]
        the language model as a Qwen2 directory, for vLLM, transformers and others
    python scripts/export.py stages MODEL_DIR OUT
        what goes from stage to stage for one fixed request, to compare a port with
    python scripts/export.py compare OUT OTHER [--tolerance 1e-4]
        two such directories, stage by stage
    python scripts/export.py triton OUT --engine cosyvoice2 --model-dir MODEL_DIR
        a model repository for Triton Inference Server, with any flags of run.sh; --streams: open at
        once; --server ENVIRONMENTS: speak through a server of scripts/export_checks.sh
    python scripts/export.py griffin-lim MEL OUT.wav [--engine cosyvoice3]
        a mel (.npy, or mel of a .safetensors) as sound without a vocoder

With --check nothing is written: what lies in OUT is compared. Exit code 1 when it differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.export_formats import estimator, griffin_lim, qwen2, stages, triton, triton_server
from scripts.export_formats.compare import ExportFault
from webui.errors import KaikouError

FORMS = {"estimator": estimator, "qwen2": qwen2, "stages": stages}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    forms = p.add_subparsers(dest="form", required=True, metavar="FORM")
    for name in FORMS:
        form = forms.add_parser(name)
        form.add_argument("model_dir", type=Path, help="a model directory")
        form.add_argument("out", type=Path, help="the directory to write to")
        form.add_argument("--check", action="store_true", help="compare only what lies there")
        if name == "qwen2":
            form.add_argument(
                "--transformers", action="store_true", help="compare through that package too"
            )
    compare = forms.add_parser("compare")
    compare.add_argument("got", type=Path)
    compare.add_argument("want", type=Path)
    compare.add_argument("--tolerance", type=float, default=stages.TOLERANCE)
    repository = forms.add_parser("triton", epilog="Other flags are those of run.sh.",
                                  allow_abbrev=False)  # fmt: skip
    repository.add_argument("out", type=Path, help="the directory to write to")
    repository.add_argument("--streams", type=int, default=triton.STREAMS, help="open at once")
    repository.add_argument("--check", action="store_true", help="compare only what lies there")
    repository.add_argument(
        "--server",
        type=Path,
        metavar="ENVIRONMENT",
        help="with nvidia-pytriton, as scripts/export_checks.sh makes it: speak through its server",
    )
    mel = forms.add_parser("griffin-lim")
    mel.add_argument("mel", type=Path)
    mel.add_argument("out", type=Path)
    mel.add_argument("--engine", choices=sorted(griffin_lim.FORMS), default="cosyvoice2")
    return p


def run(args: argparse.Namespace, flags: Sequence[str]) -> float:
    """The largest difference. flags: of run.sh, for a repository.

    Raises ExportFault, KaikouError.
    """
    if args.form == "triton":
        if not args.check:
            print(triton.write(args.out, flags, args.streams))
        triton.check(args.out, flags, args.streams)
        return triton_server.check(args.out, flags, args.server) if args.server else 0.0
    if args.form == "compare":
        return stages.compare(args.got, args.want, args.tolerance)
    if args.form == "griffin-lim":
        return griffin_lim.write(args.mel, args.out, args.engine)
    form = FORMS[args.form]
    if not args.check:
        began = time.perf_counter()
        path = form.write(args.model_dir, args.out)
        files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
        size = sum(f.stat().st_size for f in files) / 1e6
        print(f"{path}: {size:.1f} MB in {time.perf_counter() - began:.1f} s")
    if args.form == "qwen2":
        more = ("transformers",) if args.transformers else ()
        return qwen2.check(args.model_dir, args.out, ("engine", *more))
    return form.check(args.model_dir, args.out)


def main(arguments: Sequence[str] | None = None) -> int:
    p = parser()
    args, flags = p.parse_known_args(arguments)
    if flags and args.form != "triton":
        p.error(f"unrecognized arguments: {' '.join(flags)}")
    try:
        largest = run(args, flags)
    except ExportFault as fault:
        print(fault, file=sys.stderr)
        return 1
    except KaikouError as fault:
        print(f"{fault.en}\n{fault.zh}", file=sys.stderr)
        return 1
    print(f"ok: the largest difference is {largest:.2g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
