"""run.sh with a stand-in for Python in PATH: what it installs, when, what it refuses and how it
says so. No network, nothing installed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from tests.conftest import ROOT

PYTHONS = ("python3.12", "python3.11", "python3.13", "python3.14", "python3", "python")
# Answers what the scripts ask of Python, writes each call to $CALLS, and becomes .venv/bin/python
# when it is told to make an environment.
STAND_IN = r"""#!/bin/bash
echo "$*" >>"$CALLS"
case "$*" in
  *"version_info"*) exit "${BAD_VERSION:-0}" ;;
  *"import venv"*) exit "${NO_VENV:-0}" ;;
  "-m venv --clear "*)
    rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; echo home >"$4/pyvenv.cfg" ;;
  *"import pip"*) exit 0 ;;
  *"pip install"*"requirements-natural.txt"*) exit "${NATURAL_RC:-0}" ;;
  *"pip install"*) exit "${PIP_RC:-0}" ;;
  "-m compileall"*) exit "${COMPILED_RC:-0}" ;;
  "-P -m webui"*) echo "started in $PWD with: $*"; exit "${STUDIO_RC:-0}" ;;
esac
"""
DISK = """#!/bin/bash
echo "Filesystem 1024-blocks Used Available Capacity Mounted on"
echo "/dev/disk one 100 50 ${FREE_KIB} 50% /a mount"
"""


class Copy:
    """A copy of the scripts in a folder with a blank and Chinese in its name, and a PATH where
    every Python is the stand-in.
    """

    def __init__(self, folder):
        self.root, self.bin, self.calls = folder / "开口 的 copy", folder / "bin", folder / "calls"
        (self.root / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in (
            "run.sh",
            "scripts/setup_venv.sh",
            "scripts/test.sh",
            "scripts/form.sh",
            "requirements.txt",
            "requirements-dev.txt",
            "constraints.txt",
        ):
            shutil.copy(ROOT / name, self.root / name)
        for name in PYTHONS:
            self.program(name, STAND_IN)
        self.program("df", DISK)

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, *arguments, script="run.sh", cwd="/", **environ):
        self.calls.write_text("")
        env = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.root),
            "CALLS": str(self.calls),
            "FREE_KIB": "99999999",
            "LC_ALL": "C.UTF-8",
        }
        return subprocess.run(
            ["bash", str(self.root / script), *arguments],
            cwd=cwd,
            env=env | environ,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def called(self, part):
        return sum(part in line for line in self.calls.read_text().splitlines())


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def refused(run):
    """One English and one Chinese sentence at the end, exit code 2."""
    english, chinese = run.stderr.strip().splitlines()[-2:]
    assert run.returncode == 2
    assert english.isascii() or "开口" in english
    assert any("\u4e00" <= c <= "\u9fff" for c in chinese)
    assert not run.stdout
    return english


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_installs_nothing_and_works_from_anywhere(copy, flag, tmp_path):
    run = copy.run("--port", "7000", flag, cwd=tmp_path)
    assert run.returncode == 0
    assert "--root-path" in run.stdout and "Usage" in run.stdout
    assert copy.called("") == 0
    assert not (copy.root / ".venv").exists()


def test_first_start_installs_once_and_hands_all_options_over(copy, tmp_path):
    first = copy.run("--port", "7000", "--data-dir", "my data", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert (
        first.stdout == f"started in {tmp_path} with: -P -m webui --port 7000 --data-dir my data\n"
    )
    assert copy.called("pip install") == copy.called("-m compileall") == 1
    second = copy.run()
    assert second.returncode == 0
    assert copy.called("pip install") == copy.called("-m venv") == 0
    assert copy.called("") == 1, "a second start asks nothing of Python but to start the studio"


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt"])
def test_changed_requirements_are_installed_into_the_same_environment(copy, name):
    copy.run()
    with (copy.root / name).open("a") as file:
        file.write("\n# changed\n")
    copy.run()
    assert (copy.called("pip install"), copy.called("-m venv")) == (1, 0)


def test_an_interrupted_install_is_done_again(copy):
    failed = copy.run(PIP_RC="1")
    assert "packages could not be installed" in refused(failed)
    assert copy.run().returncode == 0
    assert copy.called("pip install") == 1


def test_files_of_packages_that_do_not_compile_are_no_failure(copy):
    assert copy.run(COMPILED_RC="1").returncode == 0
    assert copy.run().returncode == 0
    assert copy.called("pip install") == copy.called("-m compileall") == 0, (
        "and nothing to be done again"
    )


def test_a_half_made_environment_is_made_anew(copy):
    (copy.root / ".venv" / "bin").mkdir(parents=True)
    (copy.root / ".venv" / "bin" / "python").symlink_to("/nowhere/python3")
    assert copy.run().returncode == 0
    assert copy.called("-m venv --clear") == 1


def test_the_exit_code_of_the_studio_is_passed_on(copy):
    assert copy.run("--bogus", STUDIO_RC="2").returncode == 2


def test_no_fitting_python_is_one_sentence(copy):
    assert "Python 3.11 to 3.14 was not found" in refused(copy.run(BAD_VERSION="1"))


def test_a_missing_venv_module_is_one_sentence_with_the_remedy(copy):
    for name, remedy in (("apt-get", "apt install python3.12-venv"), ("dnf", "dnf install")):
        if name == "dnf" and shutil.which("apt-get", path="/usr/bin:/bin"):
            continue
        copy.program(name, "#!/bin/bash\n")
        assert remedy in refused(copy.run(NO_VENV="1"))
    assert not (copy.root / ".venv").exists()


def test_too_little_disk_is_one_sentence_and_nothing_is_made(copy):
    english = refused(copy.run(FREE_KIB="1000000"))
    assert "4 GB" in english and "976 MB" in english
    assert not (copy.root / ".venv").exists()


def test_an_update_needs_less_disk_than_a_first_install(copy):
    copy.run()
    (copy.root / "requirements.txt").write_text("six==1.16.0\n")
    assert copy.run(FREE_KIB="2000000").returncode == 0


def test_a_link_to_the_script_finds_the_project(copy, tmp_path):
    link = tmp_path / "kaikou link"
    os.symlink(copy.root / "run.sh", link)
    env = {"PATH": f"{copy.bin}:/usr/bin:/bin", "CALLS": str(copy.calls), "FREE_KIB": "99999999"}
    run = subprocess.run(
        ["bash", str(link)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert (copy.root / ".venv").is_dir()


def test_test_sh_installs_the_test_packages_then_lints_then_tests(copy):
    copy.program("chromium", "#!/bin/bash\n")
    run = copy.run("-k", "text", script="scripts/test.sh")
    assert run.returncode == 0, run.stderr
    calls = copy.calls.read_text().splitlines()
    assert [c for c in calls if "requirements-dev.txt" in c]
    lint, form, _, tests = calls[-4:]
    assert (lint, form, tests) == (
        "-m ruff check .",
        "-m ruff format --check .",
        "-m pytest -k text",
    )
    assert "was NOT checked" in run.stderr, "the tools for JavaScript are not there"
    copy.run()
    assert copy.called("pip install") == 0, "the test packages include the runtime's"


def test_the_natural_voice_is_installed_last_with_hashes_and_only_once(copy):
    shutil.copy(ROOT / "requirements-natural.txt", copy.root)
    assert copy.run().returncode == 0
    [install] = [c for c in copy.calls.read_text().splitlines() if "requirements-natural.txt" in c]
    assert "--require-hashes" in install and "--no-deps" in install
    assert copy.calls.read_text().splitlines()[-2:] == [install, "-P -m webui"]
    copy.run()
    assert copy.called("pip install") == 0
    (copy.root / "requirements-natural.txt").write_text("one==2 --hash=sha256:00\n")
    copy.run()
    assert copy.called("pip install") == 1, "a changed list is installed"


def test_without_the_natural_voice_the_studio_starts_says_so_and_tries_again(copy):
    shutil.copy(ROOT / "requirements-natural.txt", copy.root)
    for _ in range(2):
        failed = copy.run(NATURAL_RC="1")
        assert failed.returncode == 0 and failed.stdout.startswith("started in")
        english, chinese = failed.stderr.strip().splitlines()[-2:]
        assert "instant voice" in english and "即时音色" in chinese
        assert copy.called("requirements-natural.txt") == 1
    assert copy.run().stderr.count("instant voice") == 0
    assert copy.called("requirements-natural.txt") == 1


@pytest.mark.parametrize("answer", ["0", "false", "No"])
def test_a_natural_voice_that_nobody_wants_is_not_installed(copy, answer):
    shutil.copy(ROOT / "requirements-natural.txt", copy.root)
    assert copy.run(KAIKOU_NATURAL=answer).returncode == 0
    assert copy.called("requirements-natural.txt") == 0
    copy.run(KAIKOU_NATURAL="1")
    assert copy.called("requirements-natural.txt") == 1


def test_where_the_weights_are_already_nothing_is_asked_of_the_network(copy, tmp_path):
    """A computer without one, to which they were brought by hand: it would wait at every start, and
    say what is not so.
    """
    from webui.engine.natural.weights import FILE
    from webui.settings import Paths

    shutil.copy(ROOT / "requirements-natural.txt", copy.root)
    for folder, more in (
        (copy.root / Paths().natural_dir.relative_to(ROOT), {}),
        (tmp_path / "a stick", {"KAIKOU_NATURAL_DIR": str(tmp_path / "a stick")}),
    ):
        folder.mkdir(parents=True)
        (folder / FILE).touch()
        assert "instant voice" not in copy.run(NATURAL_RC="1", **more).stderr
        assert copy.called("requirements-natural.txt") == 0
        (folder / FILE).unlink()


class Environment:
    """A real environment with a real pip, and a place for packages that stand in for those of the
    natural voice. No network.
    """

    def __init__(self, folder):
        self.root, self.wheels = folder / "project", folder / "wheels"
        (self.root / "scripts").mkdir(parents=True)
        self.wheels.mkdir()
        for name in ("setup_venv.sh",):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        venv.create(self.root / ".venv", system_site_packages=True, symlinks=True, clear=True)
        own_site = [p for p in sys.path if p.endswith("site-packages")]
        [env_site] = (self.root / ".venv").glob("lib/python*/site-packages")
        (env_site / "pip-of-the-tests.pth").write_text("\n".join(own_site))

    def wheel(self, content=b"weights"):
        """A package of data; its hash."""
        name = "kaikou_stand_in_part"
        path = self.wheels / f"{name}-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(f"{name}/part.bin", content)
            file.writestr(f"{name}-0.1.0.dist-info/METADATA",
                f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")  # fmt: skip
            file.writestr(f"{name}-0.1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")  # fmt: skip
            file.writestr(f"{name}-0.1.0.dist-info/RECORD", "")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def pin(self, sha256):
        (self.root / "requirements-natural.txt").write_text(
            f"kaikou-stand-in-part==0.1.0 --hash=sha256:{sha256}\n"
        )

    def setup(self, **environ):
        script = (
            "set -euo pipefail; ROOT=$PWD; VENV=$ROOT/.venv; . scripts/setup_venv.sh;"
            ' setup_natural; echo "goes on"'
        )
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], "HOME": str(self.root), "LC_ALL": "C.UTF-8"} | environ,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def installed(self):
        return [p.read_bytes() for p in (self.root / ".venv").glob("lib/*/*/*/part.bin")]


def test_with_a_real_pip_it_is_refused_or_unreachable_and_the_next_start_installs_it(tmp_path):
    environment = Environment(tmp_path)
    sha256 = environment.wheel()
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(environment.wheels)}
    for pinned, environ, words in (
        (sha256, {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}, "No matching distribution"),
        ("0" * 64, offline, "DO NOT MATCH THE HASHES"),
    ):
        environment.pin(pinned)
        run = environment.setup(**environ)
        assert run.returncode == 0 and run.stdout == "goes on\n" and words in run.stderr
        english, chinese = run.stderr.strip().splitlines()[-2:]
        assert "instant voice" in english and "即时音色" in chinese
        assert (
            not environment.installed() and not (environment.root / ".venv" / ".natural").exists()
        )
    environment.pin(sha256)
    second_run = environment.setup(**offline)
    assert second_run.returncode == 0 and "instant voice" not in second_run.stderr
    assert (
        environment.installed() == [b"weights"]
        and (environment.root / ".venv" / ".natural").exists()
    )


def test_every_package_of_the_natural_voice_is_pinned_with_its_hash():
    from webui.engine.natural.weights import PACKAGES

    pins = [
        line.split()
        for line in (ROOT / "requirements-natural.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert [p[0].split("==")[0].replace("-", "_") for p in pins] == list(PACKAGES)
    assert all(len(p) == 2 and re.fullmatch("--hash=sha256:[0-9a-f]{64}", p[1]) for p in pins)


@pytest.mark.parametrize(
    "script", ["run.sh", "scripts/test.sh", "scripts/form.sh", "scripts/setup_venv.sh", ".ci/run"]
)
def test_scripts_are_plain_bash(script):
    """Nothing newer than bash 3.2: no associative arrays, mapfile, case folding, |&, or empty-array
    expansions under set -u.
    """
    text = (ROOT / script).read_text("utf-8")
    assert subprocess.run(["bash", "-n", str(ROOT / script)]).returncode == 0
    for newer in (
        "declare -A",
        "local -A",
        "mapfile",
        "readarray",
        ",,}",
        "^^}",
        "|&",
        "&>>",
        "[@]}",
        "realpath",
        "readlink -f",
        "sed -i",
    ):
        assert newer not in text, newer
