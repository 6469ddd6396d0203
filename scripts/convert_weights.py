#!/usr/bin/env python
"""Write memory-mappable copies of llm.pt, flow.pt and hift.pt beside them, so that the next start
is fast.

python scripts/convert_weights.py pretrained_models/CosyVoice2-0.5B --dtype bf16
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from webui.engine.cosyvoice.checkpoint import COMPONENTS, DTYPES, convert
from webui.engine.cosyvoice.registry import model_spec_of
from webui.errors import KaikouError, StorageFull

_BYTES = {"fp32": 1.0, "bf16": 0.5, "fp16": 0.5}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="a model directory, of any generation")
    parser.add_argument(
        "--dtype",
        choices=sorted(DTYPES),
        default="fp32",
        help="the vocoder stays fp32 whatever is chosen",
    )
    parser.add_argument(
        "--only",
        choices=sorted(COMPONENTS),
        action="append",
        help="convert this network only (may be repeated)",
    )
    args = parser.parse_args()
    try:
        parts = model_spec_of(args.directory).components
        for name in args.only or parts:
            source = args.directory / parts[name].published(args.directory)
            check_room(
                args.directory,
                name,
                int(source.stat().st_size * _BYTES[args.dtype]) if source.exists() else 0,
            )
            started = time.perf_counter()
            path = convert(args.directory, name, args.dtype, parts)
            print(
                f"{path.name}: {path.stat().st_size / 1e6:.1f} MB in"
                f" {time.perf_counter() - started:.1f} s"
            )
    except KaikouError as fault:
        print(f"{fault.en}\n{fault.zh}", file=sys.stderr)
        return 1
    return 0


def check_room(root: Path, name: str, needed: int) -> None:
    """Raises StorageFull."""
    free = shutil.disk_usage(root).free
    if needed > free:
        raise StorageFull(
            "storage.conversion",
            name=name,
            needed_gb=needed / 1e9,
            free_gb=free / 1e9,
        )


if __name__ == "__main__":
    sys.exit(main())
