"""scripts/fetch_models.py as somebody at a terminal meets it: offline, refused, interrupted and
started again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

from tests.conftest import ROOT
from webui.store.model_files import read_manifest


def script(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "scripts/fetch_models.py", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def until(is_true, limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not is_true() and time.monotonic() < end:
        time.sleep(0.02)
    assert is_true()


def test_the_script_offline_and_with_a_server_that_has_nothing(origin, tmp_path):
    process = script("--offline", "--dir", str(tmp_path))
    assert process.returncode == 1 and "llm.pt" in process.stderr and origin.requests == []
    process = script("--source", origin.url, "--dir", str(tmp_path))
    assert (
        process.returncode == 1
        and "HTTP 404" in process.stderr
        and "404" in process.stderr.splitlines()[-2]
    )
    assert (
        origin.url in process.stderr.splitlines()[-1]
        and "--source modelscope or --source hf-mirror" in process.stderr.splitlines()[-1]
    )
    assert script("Nothing", "--dir", str(tmp_path)).returncode == 2


def test_the_script_interrupted_keeps_what_came_and_goes_on(origin, tmp_path):
    sizes = {
        s.path: s.size
        for s in read_manifest(ROOT / "pretrained_models" / "MANIFEST.json")[
            "CosyVoice2-0.5B"
        ].files
        if not s.optional
    }
    origin.content |= {path: bytes([7]) * size for path, size in sizes.items() if size < 2_000_000}
    origin.hang = threading.Event()
    part = tmp_path / "CosyVoice2-0.5B" / "CosyVoice-BlankEN" / "merges.txt.incomplete"
    command = [
        sys.executable,
        "scripts/fetch_models.py",
        "--source",
        origin.url,
        "--dir",
        str(tmp_path),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert origin.half_way.wait(30)
        until(lambda: part.exists() and part.stat().st_size > 0)
        process.send_signal(signal.SIGINT)
        origin.hang.set()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "run this again" in err
    assert (
        0 < part.stat().st_size < sizes["CosyVoice-BlankEN/merges.txt"]
        and (part.parent / "config.json").stat().st_size == 659
    )
    origin.hang = None
    result = script("--source", origin.url, "--dir", str(tmp_path))
    assert "HTTP 404" in result.stderr and "vocab.json" in result.stderr, (
        "the server has no more than that"
    )
    assert (part.parent / "merges.txt").stat().st_size == sizes["CosyVoice-BlankEN/merges.txt"]
    assert "differs from the expected file" in script("--check", "--dir", str(tmp_path)).stdout
