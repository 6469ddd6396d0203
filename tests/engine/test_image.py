"""An image as far as it can be tried without Docker: the files it would hold, its own commands."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from scripts.deploy_check.files import FOLDER, ROOT, dockerfile
from tests.serve import free_port


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    """The folder /app of the image: what git has and Dockerfile.dockerignore lets in."""
    app = tmp_path_factory.mktemp("image") / "app"
    lines = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    included = [line[1:] for line in lines if line.startswith("!")]
    excluded = [line for line in lines if line[:1] not in ("#", "!", "*", "")]
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *included]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0"):
        if name and not any(name.startswith(f"{folder}/") for folder in excluded):
            (app / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, app / name)
    return app


def steps(stage: str, name: str) -> list:
    return [s for s in dockerfile(FOLDER) if (s.stage, s.name) == (stage, name)]


def local(words: list[str], port: int) -> list[str]:
    """A command of the image with this interpreter and this port."""
    words = [sys.executable if w == "python" else w for w in words]
    return [w.replace(":7860", f":{port}") for w in words]


def environment_of(*stages: str, **moved) -> dict[str, str]:
    """What ENV of these stages sets, with folders and ports of this machine."""
    values = dict(os.environ)
    for stage in stages:
        for step in steps(stage, "ENV"):
            values |= dict(word.split("=", 1) for word in step.words)
    return values | {name: str(value) for name, value in moved.items()}


@pytest.mark.thorough
def test_the_image_starts_by_its_own_command_and_its_health_check_sees_it(image, tmp_path):
    port = free_port()
    files = min(65535, resource.getrlimit(resource.RLIMIT_NOFILE)[1])  # what is allowed here
    environment = environment_of(
        "packages",
        "studio",
        PYTHONPATH=image,
        KAIKOU_DATA_DIR=tmp_path / "data",
        KAIKOU_PORT=port,
        KAIKOU_MODEL_DIR=tmp_path,
        KAIKOU_NATURAL_DIR=tmp_path,
        KAIKOU_NATURAL=0,
        OPEN_FILES=files,
    )
    [entry], [command] = steps("studio", "ENTRYPOINT"), steps("studio", "CMD")
    [health] = steps("studio", "HEALTHCHECK")
    check = local(yaml.safe_load(health.text.partition("CMD ")[2]), port)
    argv = local([*entry.words, *command.words], port)

    def run(**more):
        return subprocess.Popen(argv, cwd=image, env=environment | more, stderr=subprocess.PIPE)

    refused = run()  # it listens to others and has no key
    assert refused.wait(60) == 2 and b"--auth" in refused.stderr.read()
    studio = run(KAIKOU_API_KEY="a-key")
    try:
        end_s = time.monotonic() + 60
        while subprocess.run(check, cwd=image).returncode:
            assert studio.poll() is None, studio.stderr.read().decode()
            assert time.monotonic() < end_s
            time.sleep(0.2)
        limits = Path(f"/proc/{studio.pid}/limits").read_text()
        assert [line.split()[3] for line in limits.splitlines() if "open files" in line] == [
            str(files)
        ]
    finally:
        studio.terminate()
        studio.wait(30)
        studio.stderr.close()
    assert subprocess.run(check, cwd=image).returncode == 1


@pytest.mark.skipif(find_spec("ray") is not None, reason="it would start a fleet")
def test_the_fleet_of_the_image_needs_no_key_of_a_studio(image):
    """As far as Ray, where there is none: nothing else is refused before."""
    [command] = steps("fleet", "CMD")
    done = subprocess.run(
        local(command.words, 0),
        cwd=image,
        env=environment_of("studio", "fleet", PYTHONPATH=image, KAIKOU_FLEET_KEY="a-secret"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "requirements-cluster.txt" in done.stderr, done.stderr


def test_the_entry_refuses_a_machine_with_too_few_files():
    run = subprocess.run(
        ["bash", "-c", "ulimit -n 1024; exec bash scripts/deploy/start.sh true"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and "1024" in run.stderr and "打开" in run.stderr


@pytest.mark.thorough
def test_the_hot_image_has_the_natural_voice_inside(image, tmp_path):
    """As far as its packages are installed here."""
    [run] = steps("hot", "RUN")
    script = run.words[1]
    environment = environment_of("studio", KAIKOU_NATURAL_DIR=tmp_path, PYTHONPATH=image)
    done = subprocess.run(
        [sys.executable, script], cwd=image, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("kokoro-*.onnx")) or "requirements-natural.txt" in done.stderr


@pytest.mark.thorough
def test_the_weights_of_the_hot_image_are_converted_once(image, small_model, tmp_path):
    shutil.copytree(small_model, tmp_path / "weights")
    [run] = steps("hot", "RUN")
    assert "scripts/prewarm.py" in run.text and "--convert" in run.text
    report = tmp_path / "report.json"
    command = [sys.executable, "scripts/prewarm.py", tmp_path / "weights", "--convert"]
    for expected in ("converting", "is there"):
        done = subprocess.run(
            [*command, "--json", report], cwd=image, capture_output=True, text=True
        )
        assert done.returncode == 0 and expected in done.stdout, done.stderr
    assert json.loads(report.read_text())["start_s"] > 0
