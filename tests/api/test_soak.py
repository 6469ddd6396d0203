"""The soak on a small scale: a studio in use does not grow, and one that leaks is caught.

KAIKOU_SOAK_MINUTES makes the first as long as wanted.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scripts.make_small_model import make
from scripts.soak import Count, growth_of
from tests.conftest import ROOT

MINUTES = os.environ.get(
    "KAIKOU_SOAK_MINUTES", "1"
)  # the whole suite has 20 minutes; five of them show slower leaks

# In a minute the kernels kept (child.KEPT_KERNELS) and the language model's slots are still being
# filled: up to 31 MB were measured where the soak itself allows 26. With torch's and oneDNN's own
# limits in the environment it is 175 to 218 MB, and the soak ends with 1.
FILLING_MB = 20


def soak(*args: object, minutes: object) -> tuple[int, dict, str]:
    out = Path(tempfile.mkstemp(suffix=".json")[1])
    try:
        process = subprocess.run(
            [
                sys.executable,
                "scripts/soak.py",
                "--minutes",
                str(minutes),
                "--json",
                str(out),
                *map(str, args),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240 + 120 * float(minutes),
        )
        return (
            process.returncode,
            json.loads(out.read_text()),
            process.stdout + process.stderr[-2000:],
        )
    finally:
        out.unlink(missing_ok=True)


def test_a_studio_in_use_does_not_grow(tmp_path):
    make(tmp_path / "CosyVoice2-0.5B")
    code, report, words = soak(
        "--engine",
        "cosyvoice2",
        "--model-dir",
        tmp_path,
        "--filling-mb",
        FILLING_MB if float(MINUTES) < 5 else 0,
        minutes=MINUTES,
    )
    assert code == 0 and not report["growth"], words
    assert (
        report["visits"]["listener"]
        and report["visits"]["leaver"]
        and report["visits"]["slow reader"]
    ), words


def test_a_planted_leak_is_caught():
    code, report, words = soak(
        "--command", f"{shlex.quote(sys.executable)} -m tests.leaky", "--rounds", 5, minutes=0.1
    )
    assert code == 1, words
    assert {"descriptors", "threads", "temp_files", "rss_mb"} <= report["growth"].keys(), words


@pytest.mark.parametrize(
    ("last", "names"),
    [
        (Count(202, 40, 20, 3), set()),
        (Count(202, 60, 20, 3), {"descriptors"}),
        (Count(260, 40, 30, 9), {"rss_mb", "threads", "temp_files"}),
    ],
)
def test_growth_is_told_from_noise(last, names):
    first = Count(200, 39, 20, 2)
    assert set(growth_of([Count(150, 30, 10, 0)] * 2 + [first] * 3 + [last] * 3)) == names
