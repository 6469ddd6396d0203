"""The package that `pip install .` makes: all that a studio needs of a clone, and a command.

Its environment lies in a folder with a blank and Chinese in its name, and borrows the packages of
the tests' own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.serve import free_port

PARTS = ["webui", "assets", "pyproject.toml", "setup.py", "requirements.txt", "README.md"]
PARTS += ["LICENSE", "NOTICE", "pretrained_models/MANIFEST.json", "pretrained_models/README.md"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built without a network, from a copy."""
    source = tmp_path_factory.mktemp("source")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            (source / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    wheel_dir = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", wheel_dir, source)
    return next(wheel_dir.glob("kaikou-*.whl"))


@pytest.fixture(scope="module")
def bin_dir(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("环境 one")
    venv.create(folder, with_pip=False, symlinks=True)
    bin_dir = folder / "bin"
    paths = {"base": str(folder), "platbase": str(folder)}
    purelib = Path(sysconfig.get_path("purelib", vars=paths))
    (purelib / "borrowed.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    pip(f"--python={bin_dir}/python", "install", "--no-deps", "--no-index", wheel)
    return bin_dir


def pip(*arguments) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run([str(a) for a in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def environment(home: Path) -> dict:
    """That of a user in their own folder, where nothing points at the clone."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KAIKOU_", "PYTHON", "XDG_"))}
    return env | {"HOME": str(home), "KAIKOU_NATURAL": "0"}


def test_all_files_of_the_program_are_in_it_and_no_others(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "ls-files", "-z", "webui", "assets", "pretrained_models"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    expected = {n if n.startswith("webui/") else f"webui/{n}" for n in listed if n}
    expected = {n for n in expected if "/screenshots/" not in n}
    # A file that is not added to git yet is in the tree and in the package alike.
    added = {n for n in inside if not (ROOT / n).exists() and not (ROOT / n[6:]).exists()}
    assert expected - inside == set()
    assert {n for n in added if ".dist-info/" not in n} == set()


def test_the_command_explains_itself(bin_dir, tmp_path):
    shown = subprocess.run(
        [bin_dir / "kaikou", "--help"],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "--data-dir" in shown.stdout


def test_the_command_starts_a_studio_that_speaks_and_keeps_its_data_in_the_users_folder(
    bin_dir, tmp_path
):
    port = free_port()
    studio = subprocess.Popen(
        [bin_dir / "kaikou", "--engine", "builtin", "--port", str(port)],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = studio.stdout.readline().split()[-1]
        assert url == f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=120) as client:
            page = client.get("/")
            assert "开口" in page.text
            sound = client.post(
                "/v1/audio/speech", json={"input": "Good morning.", "voice": "alloy"}
            )
            assert sound.status_code == 200, sound.text
            assert len(sound.content) > 2_000
    finally:
        studio.terminate()
        studio.wait(60)
    data = tmp_path / ".local" / "share" / "kaikou" / "data"
    if sys.platform == "linux":
        assert data.is_dir()
        assert not (bin_dir.parent / "lib" / "data").exists()
