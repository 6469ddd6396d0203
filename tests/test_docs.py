"""What is written down is true: files that exist, options that exist, every package pinned, no
machine's paths.
"""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text("utf-8")
ROOTED = re.compile(
    r"^(run\.sh|requirements[\w.-]*|constraints\.txt|pyproject\.toml|(webui|assets|scripts|tests|pretrained_models)/.*|LICENSE|NOTICE)$"
)
IS_PINNED = re.compile(r"^[A-Za-z0-9_.-]+==[\w.]+(; .+)?$")


def tracked(*patterns):
    names = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [ROOT / n for n in names if n and (ROOT / n).is_file()]


def named_files():
    in_code = re.findall(r"`([^`\s]+)`", README)
    return sorted({n for n in in_code + re.findall(r"\]\(([^)#:]+)\)", README) if ROOTED.match(n)})


@pytest.mark.parametrize("name", named_files())
def test_the_readme_names_files_that_exist(name):
    assert (ROOT / name).exists()


def test_the_readme_tells_of_every_room():
    rooms = [
        f"webui/{p.name}/" for p in (ROOT / "webui").iterdir() if (p / "__init__.py").is_file()
    ]
    rooms += [
        f"assets/{p.name}/"
        for p in (ROOT / "assets").iterdir()
        if p.is_dir() and p.name != "screenshots"
    ]
    assert [r for r in rooms if f"`{r}`" not in README] == []


def test_both_commands_stand_in_both_languages():
    for half in README.split("# English\n"):
        assert "&& cd kaikou && ./run.sh" in half
        assert "bash scripts/test.sh" in half


def test_that_an_upload_to_the_facades_is_taken_as_consent_is_said_in_both_languages():
    """Whoever lets others use these routes must know it before the first upload."""
    facades = (ROOT / "docs" / "facades.md").read_text("utf-8")
    for whole, mark in ((README, "# English\n"), (facades, "# 中文\n")):
        halves = whole.split(mark)
        chinese, english = halves if mark.startswith("# E") else halves[::-1]
        english = " ".join(english.split())
        assert re.search(r"sends? a recording .{0,40}says by that that its speaker agreed", english)
        assert "`consent=false`" in english and "refused" in english
        assert re.search("(上传|发送)录音，?即表示说话人已同意", chinese)
        assert "`consent=false`" in chinese and "拒绝" in chinese


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_options_are_the_same_everywhere():
    asked = subprocess.run(
        [sys.executable, "-m", "webui", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    real = options_of(asked)
    told = options_of(
        subprocess.run(
            ["bash", "run.sh", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    )
    table = {
        o
        for line in README.splitlines()
        if line.startswith("| `--")
        for o in options_of(line.split("|")[1])
    }
    assert told == real
    assert table == real


# Has read what takes seconds to read, nothing of ours, and forks: each script finds the interpreter
# as `python scripts/NAME.py --help` would.
_FORKS = """
import os, runpy, sys, traceback
import numpy, torch
for line in sys.stdin:
    script, folder, told = line.rstrip("\\n").split("\\t")
    if not (pid := os.fork()):
        code = 1
        try:
            os.chdir(folder)
            os.dup2(os.open(told + ".out", os.O_WRONLY | os.O_CREAT), 1)
            os.dup2(os.open(told + ".err", os.O_WRONLY | os.O_CREAT), 2)
            sys.argv, sys.path[0] = [script, "--help"], os.path.dirname(script)
            runpy.run_path(script, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def python_help(tmp_path_factory):
    """(script, folder) -> (exit code, stdout, stderr) of the script's --help in that folder."""
    told = tmp_path_factory.mktemp("told")
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS],
        cwd=told,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as forks:

        def ask(script, folder):
            forks.stdin.write(f"{script}\t{folder}\t{told / script.name}\n")
            forks.stdin.flush()
            return int(forks.stdout.readline()), *(
                (told / f"{script.name}.{end}").read_text("utf-8") for end in ("out", "err")
            )

        yield ask


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in tracked("run.sh", "scripts/*.sh", "scripts/*.py")
        if p.parent in (ROOT, ROOT / "scripts")
    ],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_every_script_explains_itself(path, tmp_path, python_help):
    if path.suffix == ".sh":
        run = subprocess.run(
            ["bash", str(path), "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        code, out, err = run.returncode, run.stdout, run.stderr
    else:
        code, out, err = python_help(path, tmp_path)
    assert code == 0, err[-400:]
    assert len(out) > 40
    assert not list(tmp_path.iterdir()), "--help was taken for something to do"


def requirement_lines(name):
    lines = (
        line.partition("  #")[0].strip() for line in (ROOT / name).read_text("utf-8").splitlines()
    )
    return [line for line in lines if line and not line.startswith(("#", "-r "))]


@pytest.mark.parametrize(
    "name",
    ["requirements.txt", "requirements-dev.txt", "requirements-meters.txt", "constraints.txt"],
)
def test_every_package_is_pinned(name):
    assert [line for line in requirement_lines(name) if not IS_PINNED.match(line)] == []


def test_constraints_agree_with_the_requirements():
    def pins(name):
        return {
            k.lower().replace("_", "-"): v.partition(";")[0]
            for k, _, v in (line.partition("==") for line in requirement_lines(name))
        }

    wanted, held = pins("requirements.txt") | pins("requirements-dev.txt"), pins("constraints.txt")
    assert {k: held.get(k) for k in wanted} == wanted


PACKAGE_OF = {
    "pyworld": "pyworld-prebuilt",
    "yaml": "pyyaml",
}  # where the import has another name than the package
# reads kanji when somebody has installed it (it is GPL); the built-in voice says so when it is not
# there
OPTIONAL = {"pykakasi"}


@pytest.mark.parametrize(
    ("folders", "files"),
    [
        (["webui"], ["requirements.txt"]),
        (["webui", "tests"], ["requirements.txt", "requirements-dev.txt"]),
        (["scripts"], ["requirements.txt", "requirements-dev.txt", "requirements-meters.txt"]),
    ],
)
def test_direct_imports_are_required(folders, files):
    """What is imported by name must be a package that is asked for, or the standard library's;
    modules beside the file are its own.
    """
    from tests.test_layers import absolute_imports

    def plain(name):
        return name.lower().replace("_", "-")

    asked = {plain(line.partition("==")[0]) for name in files for line in requirement_lines(name)}
    ours = {"webui", "tests", "scripts", *sys.stdlib_module_names} | OPTIONAL
    missing = set()
    for path in (p for folder in folders for p in (ROOT / folder).rglob("*.py")):
        siblings = {p.stem for p in path.parent.glob("*") if p.suffix in ("", ".py")}
        names = {dotted.split(".")[0] for _, dotted in absolute_imports(path)} - siblings - ours
        missing |= {
            f"{path.relative_to(ROOT)}: {n}"
            for n in names
            if n and plain(PACKAGE_OF.get(n, n)) not in asked
        }
    assert missing == set()


def test_no_machine_paths_or_package_hosts():
    machine = re.compile(
        "/wo" + "rk/|/ro" + r"ot/|/home/\w|--(?:extra-)?index-" + "url|/opt/py" + "pi"
    )
    found = []
    for path in tracked(
        "*.py",
        "*.js",
        "*.css",
        "*.md",
        "*.sh",
        "*.txt",
        "*.toml",
        "*.json",
        "*.html",
        ".ci/*",
        "NOTICE",
    ):
        found += [
            f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
            for line in path.read_text("utf-8").splitlines()
            if machine.search(line)
        ]
    assert found == []


def test_the_licence_is_the_whole_apache_text():
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
    assert "GPL-3.0-or-later" in README and "GPL-3.0-or-later" in (ROOT / "NOTICE").read_text(
        "utf-8"
    )
