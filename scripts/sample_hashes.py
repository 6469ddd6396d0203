#!/usr/bin/env python
"""A hash of the samples of fixed requests: the proof that a change of the code changed no sound.

    python scripts/sample_hashes.py > now.txt         # of this working tree
    python scripts/sample_hashes.py DIR > before.txt  # of another one, for instance an older commit
    diff before.txt now.txt

Starts the studio of the tree once per engine (the built-in voices; small random models of three
generations, in fp32 and int8) and speaks over HTTP, so no name of the code matters: every mode the
engine has, two languages, streamed and whole; what it refuses is compared too. Compare hashes made
on one machine: processors round differently.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import httpx

from tests.serve import ROOT, free_port

TEXTS = (
    "今天的风很温柔，我们出去走走吧。晚上七点半在老地方见，别忘了带上那本书。",
    "The kettle is on, sit down. I will be there at half past nine, so don't wait for me.",
)
VOICES = ("starter-zh-low", "starter-en-bright")
GENERATIONS = ("cosyvoice1", "cosyvoice2", "cosyvoice3")
START_S = 120.0


@contextlib.contextmanager
def studio(tree: Path, *flags: str, **env: str) -> Iterator[httpx.Client]:
    """A client of the ready studio of `tree`, whose data folder goes away afterwards."""
    usual = {"KAIKOU_EXAMINE": "0", "KAIKOU_STARTS_PER_MINUTE": "100000"}
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        argv = [sys.executable, "-m", "webui", "--port", str(port), "--data-dir", folder, *flags]
        with (Path(folder) / "log.txt").open("w") as log:
            process = subprocess.Popen(
                argv, cwd=tree, env={**os.environ, **usual, **env}, stdout=log, stderr=log
            )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
                _wait_ready(client, process, Path(folder) / "log.txt")
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _wait_ready(client: httpx.Client, process: subprocess.Popen, log: Path) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            health = client.get("/tts/health")
            if client.get("/health/ready").status_code == 200 and (
                health.json().get("natural") != "starting"
            ):
                return
        time.sleep(0.2)
    raise SystemExit(f"the studio did not become ready:\n{log.read_text('utf-8')[-2000:]}")


def requests(tree: Path) -> Iterator[tuple[str, dict]]:
    """(name, body) of every request; what an engine cannot do it refuses, and that is compared."""
    clip = base64.b64encode((tree / "assets/voices/starter-en-mid.wav").read_bytes()).decode()
    for n, text in enumerate(TEXTS):
        for voice in VOICES:
            usual = {"input": text, "voice": voice, "seed": 7 + n}
            yield f"text {n}, {voice}", usual
            yield f"text {n}, {voice}, cross_lingual", usual | {"mode": "cross_lingual"}
            yield (
                f"text {n}, {voice}, instruct",
                usual
                | {
                    "mode": "instruct",
                    "instructions": ("用四川话，慢一点", "Speak fast and happily")[n],
                },
            )
        yield f"text {n}, preset", {"input": text, "mode": "preset", "seed": 3}
        reference = {"ref_audio": clip, "ref_text": "Good morning.", "consent": True}
        yield f"text {n}, own clip", {"input": text, "seed": 5, "speed": 1.2, **reference}
    convert = {"mode": "convert", "input": "", "source_audio": clip, "consent": True}
    yield "convert", {"voice": VOICES[0], "seed": 1, **convert}


def hashes(client: httpx.Client, tree: Path, **every: str) -> Iterator[str]:
    for name, body in requests(tree):
        for is_live in (True, False):
            params = body | every | {"response_format": "wav", "stream": is_live}
            answer = client.post("/v1/audio/speech", json=params)
            if answer.status_code != 200:
                error = answer.json()["error"]
                yield f"{name}: {answer.status_code} {error['code']} {error['message']}"
                break
            # the header of a stream has no sizes
            samples = answer.content[answer.content.index(b"data") + 8 :]
            digest = hashlib.sha256(samples).hexdigest()[:16]
            yield f"{name}, {'streamed' if is_live else 'whole'}: {len(samples)} bytes {digest}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, metavar="DIR")
    args = parser.parse_args()
    tree = args.tree.resolve()
    with studio(tree, "--engine", "builtin") as client:
        for model in ("builtin-instant", "builtin-natural"):
            for line in hashes(client, tree, model=model):
                print(f"{model}: {line}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for generation in GENERATIONS:
            target = Path(folder) / generation
            maker = [sys.executable, ROOT / "scripts/make_small_model.py", target]
            subprocess.run([*maker, "--family", generation], check=True, stdout=subprocess.DEVNULL)
            for precision in ("fp32", "int8"):
                flags = ("--engine", generation, "--model-dir", str(target))
                with studio(tree, *flags, KAIKOU_PRECISION=precision) as client:
                    for line in hashes(client, tree):
                        print(f"{generation} {precision}: {line}", flush=True)


if __name__ == "__main__":
    main()
