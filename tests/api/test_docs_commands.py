"""Every command and every program of the README and the docs runs: those that speak, against a
studio; those that take long, need weights or a GPU, as far as their arguments.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.serve import free_port, running
from tests.test_docs import PAGES, options_of, text_of

ADDRESS = "http://127.0.0.1:7860"
RPC_ADDRESS = "127.0.0.1:7861"
# What these do is run by other tests, or takes minutes, weights or another machine: here their
# arguments are read against their --help, and their paths against the repository.
ARGUMENTS_ONLY = {
    "pip": "gigabytes; tests/unit/test_wheel.py installs what it makes",
    "kaikou": "tests/unit/test_wheel.py starts it",
    "git": "a fresh clone needs minutes and a network",
    "./run.sh": "tests/unit/test_run_sh.py starts it",
    "scripts/test.sh": "it runs this test",
    "scripts/form.sh": "scripts/test.sh runs it first",
    "scripts/fetch_models.py": "gigabytes; tests/unit/test_models_fetch.py has hubs of its own",
    "scripts/export.py": "needs weights; tests/engine/test_export.py runs it with small ones",
    "scripts/bench_first_sound.py": "a benchmark",
    "scripts/bench_first_load.py": "a benchmark",
    "tests.browser.test_journeys": "pytest runs the same walk",
    "docker": "there may be none; scripts/check_deploy.py examines what it is given",
    "haproxy": "tests/engine/test_cells.py runs it with these settings",
    "kubectl": "needs a cluster; scripts/check_deploy.py examines what it is given",
    "scripts/size_fleet.py": "minutes; tests/unit/test_size_fleet.py runs a small one",
    "scripts/check_deploy.py": "tests/unit/test_deploy.py runs it",
    "webui.cluster": "needs Ray; tests/engine/test_cluster_contract.py has replicas without it",
}


def blocks(kind):
    return [
        (page, block)
        for page in PAGES
        for block in re.findall(rf"(?ms)^```{kind}\n(.*?)^```", text_of(page))
    ]


def commands():
    command_lines = []
    for page, block in blocks("sh"):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = shlex.split(line, comments=True)
            while "&&" in words:
                command_lines.append((page, words[: words.index("&&")]))
                words = words[words.index("&&") + 1 :]
            if words:
                command_lines.append((page, words))
    return command_lines


@pytest.fixture(scope="module")
def rpc_port():
    return free_port()


@pytest.fixture(scope="module")
def studio(rpc_port):
    with running("--grpc-port", str(rpc_port), engine="builtin") as studio:
        yield studio


def help_of(words):
    run = subprocess.run([*words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    return options_of(run.stdout)


@pytest.mark.parametrize(
    ("page", "words"), commands(), ids=lambda x: x if isinstance(x, str) else x[-1][:40]
)
def test_a_command_runs(page, words, studio, tmp_path):
    words = [w.replace(ADDRESS, studio.url) for w in words]
    words[0] = words[0].removeprefix(".venv/bin/")
    words = words[1:] if words[0] in ("python", "bash") else words
    words = words[1:] if words[0] == "-m" else words
    if words[0] in ("cd", "git", "export"):
        return
    if words[0] in ("docker", "kubectl", "haproxy"):
        assert words[0] in ARGUMENTS_ONLY
        assert [w for w in words if w.startswith("scripts/") and not (ROOT / w).exists()] == []
        return
    if words[0] == "curl":
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert (tmp_path / "take.wav").read_bytes()[:4] == b"RIFF", done.stderr
    elif words[0] == "webui.client":
        subprocess.run(
            [sys.executable, "-m", *words, "--url", studio.url],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )
        assert (tmp_path / "take.wav").read_bytes()[:4] == b"RIFF"
    elif words[0] == "scripts/keys.py":
        done = subprocess.run(
            [sys.executable, ROOT / words[0], "--data-dir", tmp_path, *words[1:]],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "\nkk_" in done.stdout
    else:
        assert words[0] in ARGUMENTS_ONLY, f"{page}: nobody runs this"
        if words[0] == "kaikou":
            words[0] = "./run.sh"  # the same options
        if words[0] == "webui.cluster":  # its own options, and those of run.sh
            help_words = help_of([sys.executable, "-m", *words[:2]]) | help_of(["bash", "./run.sh"])
            assert {w for w in words if w.startswith("--")} <= help_words
        elif words[0] != "pip" and not words[0].startswith("tests."):
            program = "bash" if words[0].endswith(".sh") else sys.executable
            options = [w for w in words[1:] if w.startswith("--")]
            if words[0] != "scripts/test.sh":  # whose arguments are pytest's
                assert set(options) <= help_of([program, words[0]]), words
            paths = [
                w for w in words[1:] if "/" in w and not w.startswith(("/", "ray://", "redis://"))
            ]
            assert [w for w in paths if not (ROOT / w).exists()] == []


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda x: str(x)[:20])
def test_a_program_runs(page, code, studio, rpc_port, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    code = code.replace(ADDRESS, studio.url).replace(ADDRESS[4:], studio.url[4:])
    code = code.replace(RPC_ADDRESS, f"127.0.0.1:{rpc_port}")
    exec(compile(code, page, "exec"), names)
    if "speak" in names:  # a function to be called with a source of text and a player
        import asyncio

        async def deltas():
            for delta in ("Good ", "morning. ", "How are you?"):
                yield delta

        sound = []

        asyncio.run(names["speak"](deltas(), sound.append))
        assert sum(map(len, sound)) > 20000
    else:
        assert (tmp_path / "take.wav").read_bytes()[:4] == b"RIFF"
