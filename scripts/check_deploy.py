#!/usr/bin/env python
"""Examine the files of scripts/deploy without Docker, Kubernetes or a network: their forms, by
hadolint, the Compose and Kubernetes schemas, HAProxy and a parser of PromQL; and that flags,
settings, ports, addresses, files and metrics are those of the program.

python scripts/check_deploy.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.deploy_check.files import FOLDER
from webui.settings import Paths, Settings


def problems(folder: Path, metrics: str, board: Path | None = None) -> Iterator[str]:
    """metrics: what a studio answers at /metrics. board: another dashboard than ours."""
    from scripts.deploy_check import figures, forms, program, proxy

    yield from forms.check(folder)
    yield from program.check(folder)
    yield from proxy.check(folder)
    yield from figures.check(folder, figures.exported(metrics), board or figures.DASHBOARD)


def metrics_of_a_studio() -> str:
    from webui.studio import Studio

    with tempfile.TemporaryDirectory() as data:
        return Studio(Settings(paths=replace(Paths(), data_dir=Path(data)))).metrics.text().decode()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default scripts/deploy")
    args = parser.parse_args()
    errors = list(problems(args.folder, metrics_of_a_studio()))
    print("\n".join(errors) or "nothing is wrong")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
