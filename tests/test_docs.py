"""What is written down is true: files that exist, options that exist, every package pinned, no
machine's paths.
"""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tests.conftest import ROOT, thorough_rules

READMES = ("README.md", "README.zh.md")
PAGES = (
    *READMES,
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md"))),
)
ROOTED = re.compile(
    r"^(run\.sh|requirements[\w.-]*|constraints\.txt|pyproject\.toml"
    r"|(webui|assets|scripts|tests|pretrained_models)/.*|LICENSE|NOTICE)$"
)
OTHERS = "".join(p.read_text("utf-8") for p in (ROOT / "tests" / "engine").glob("*.py"))
IS_PINNED = re.compile(r"^[A-Za-z0-9_.-]+==[\w.]+(; .+)?$")


def tracked(*patterns):
    names = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [ROOT / n for n in names if n and (ROOT / n).is_file()]


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def test_every_page_names_files_that_exist():
    named = {
        (page, name)
        for page in PAGES
        for name in re.findall(r"`([^`\s]+)`", text_of(page))
        if ROOTED.match(name) and "*" not in name and name != "pretrained_models/natural"
    }
    assert [(page, name) for page, name in sorted(named) if not (ROOT / name).exists()] == []


def anchors_of(path):
    """The anchors of a page's headings, as the sites that show Markdown make them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def test_every_link_leads_somewhere():
    dead = []
    for page in PAGES:
        for to in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
            if re.match(r"https?:", to):
                continue
            file, _, anchor = to.partition("#")
            path = (ROOT / page).parent / file if file else ROOT / page
            if not path.exists() or (anchor and anchor not in anchors_of(path)):
                dead.append((page, to))
    assert dead == []


def test_the_architecture_tells_of_every_room():
    rooms = [
        f"webui/{p.name}/" for p in (ROOT / "webui").iterdir() if (p / "__init__.py").is_file()
    ]
    rooms += [
        f"assets/{p.name}/"
        for p in (ROOT / "assets").iterdir()
        if p.is_dir() and p.name != "screenshots"
    ]
    text = text_of("docs/architecture.md")
    assert [r for r in rooms if f"`{r}`" not in text] == []


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_short_and_begins_with_both_commands(name):
    readme = text_of(name)
    assert len(readme.encode()) <= 7000
    head = readme.splitlines()[:20]
    assert any("&& cd kaikou && ./run.sh" in line for line in head)
    assert any("bash scripts/test.sh" in line for line in head)
    assert any("](assets/screenshots/" in line for line in head)
    assert [w for w in ("CosyVoice", "Kokoro-82M") if w not in "".join(head)] == []


def test_a_page_for_users_says_the_same_in_both_languages():
    """The same commands and the same names in code."""

    def facts(name):
        text = re.sub(r"(?m)\s+#.*$", "", text_of(name))
        code = "".join(re.findall(r"(?s)```.*?```", text))
        return set(re.findall(r"KAIKOU_[A-Z_]+|/v\d/[\w/]+|scripts/\w+\.(?:py|sh)", text)), len(
            code.splitlines()
        )

    pairs = [(str(p.relative_to(ROOT)), f"docs/{p.name}") for p in (ROOT / "docs/zh").iterdir()]
    for chinese, english in [("README.zh.md", "README.md"), *pairs]:
        assert facts(chinese) == facts(english), chinese


def test_that_an_upload_to_the_facades_is_taken_as_consent_is_said_in_both_languages():
    """Whoever lets others use these routes must know it before the first upload."""
    chinese, english = text_of("docs/facades.md").split("# 中文\n")[::-1]
    for words, api_text in (
        (english, chinese),
        (text_of("docs/api.md"), text_of("docs/zh/api.md")),
    ):
        words = " ".join(words.split())
        assert re.search(r"sends? a recording .{0,40}says by that that its speaker agreed", words)
        assert "`consent=false`" in words and "refused" in words
        assert re.search("(上传|发送)录音，?即表示说话人已同意", api_text)
        assert "`consent=false`" in api_text and "拒绝" in api_text


def test_the_settings_are_those_of_the_table():
    from webui.settings import SECTIONS

    rows = re.findall(r"^\| `(\w+\.\w+)` \| (\S+) \|", text_of("docs/options.md"), re.M)
    expected = {}
    for section, make in SECTIONS.items():
        for field in fields(make):
            value = getattr(make(), field.name)
            if isinstance(value, Path):
                value = value.relative_to(ROOT)
            elif isinstance(value, bool):
                value = int(value)
            elif isinstance(value, float):
                value = f"{value:g}"
            expected[f"{section}.{field.name}"] = f"`{value}`" if value not in ("", ()) else "–"
    assert dict(rows) == expected


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_options_are_the_same_everywhere():
    help_text = subprocess.run(
        [sys.executable, "-m", "webui", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    real = options_of(help_text)
    options = options_of(
        subprocess.run(
            ["bash", "run.sh", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    )
    table = {
        o
        for line in text_of("docs/options.md").splitlines()
        if line.startswith("| `--")
        for o in options_of(line.split("|")[1])
    }
    assert options == real
    assert table == real


def test_the_list_of_the_thorough_suite_names_tests_that_exist():
    missing_tests = []
    for name in thorough_rules():
        file, *inside = name.split("::")
        text = (ROOT / file).read_text("utf-8") if (ROOT / file).is_file() else ""
        # a test may come from a contract or a list in another file
        source_text = text + (OTHERS if "/engine/" in file else "")
        missing_tests += (
            [name]
            if not text
            or not all(re.search(rf"\b(?:def|class) {part}\b", source_text) for part in inside)
            else []
        )
    assert missing_tests == []


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
    out_dir = tmp_path_factory.mktemp("told")
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS],
        cwd=out_dir,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as forks:

        def ask(script, folder):
            forks.stdin.write(f"{script}\t{folder}\t{out_dir / script.name}\n")
            forks.stdin.flush()
            return int(forks.stdout.readline()), *(
                (out_dir / f"{script.name}.{end}").read_text("utf-8") for end in ("out", "err")
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
    [
        "requirements.txt",
        "requirements-dev.txt",
        "requirements-meters.txt",
        "constraints.txt",
        "scripts/export_formats/transformers.txt",
        "scripts/export_formats/triton.txt",
    ],
)
def test_every_package_is_pinned(name):
    assert [line for line in requirement_lines(name) if not IS_PINNED.match(line)] == []


def test_constraints_agree_with_the_requirements():
    def pins(name):
        return {
            k.lower().replace("_", "-"): v.partition(";")[0]
            for k, _, v in (line.partition("==") for line in requirement_lines(name))
        }

    expected, constraints = (
        pins("requirements.txt") | pins("requirements-dev.txt"),
        pins("constraints.txt"),
    )
    assert {k: constraints.get(k) for k in expected} == expected


PACKAGE_OF = {
    "pyworld": "pyworld-prebuilt",
    "yaml": "pyyaml",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "google": "protobuf",
}  # where the import has another name than the package
# reads kanji when somebody has installed it (it is GPL); the built-in voice says so when it is not
# there
# of a fleet's machines, of gRPC and of Kafka: requirements-cluster.txt
# of the environments of scripts/export_checks.sh only: transformers, and what Triton has
# aligns words where it is installed: pocketsphinx
# the client of a shared cache, only where one is wanted: redis
OPTIONAL = {
    "pykakasi",
    "ray",
    "grpc",
    "grpc_health",
    "grpc_reflection",
    "google",
    "transformers",
    "tritonclient",
    "triton_python_backend_utils",
    "pocketsphinx",
    "redis",
    "confluent_kafka",
}


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

    requirements = {
        plain(line.partition("==")[0]) for name in files for line in requirement_lines(name)
    }
    own_packages = {"webui", "tests", "scripts", *sys.stdlib_module_names} | OPTIONAL
    missing = set()
    for path in (p for folder in folders for p in (ROOT / folder).rglob("*.py")):
        siblings = {p.stem for p in path.parent.glob("*") if p.suffix in ("", ".py")}
        names = (
            {dotted.split(".")[0] for _, dotted in absolute_imports(path)} - siblings - own_packages
        )
        missing |= {
            f"{path.relative_to(ROOT)}: {n}"
            for n in names
            if n and plain(PACKAGE_OF.get(n, n)) not in requirements
        }
    assert missing == set()


def test_no_machine_paths_or_package_hosts():
    machine = re.compile(
        "/wo" + "rk/|/ro" + r"ot/|/home/\w|--(?:extra-)?index-" + "url|/opt/py" + "pi"
    )
    violations = []
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
        violations += [
            f"{path.relative_to(ROOT)}: {line.strip()[:100]}"
            for line in path.read_text("utf-8").splitlines()
            if machine.search(line)
        ]
    assert violations == []


def test_the_licence_is_the_whole_apache_text():
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
    assert all("GPL-3.0-or-later" in text_of(name) for name in (*READMES, "NOTICE"))
