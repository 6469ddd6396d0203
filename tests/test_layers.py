"""The house keeps its shape: who may import whom, and that the page and the routes open without
torch.
"""

import ast
import importlib.util
import subprocess
import sys
from functools import cache

import pytest

from scripts.house_table import circles
from tests.conftest import ROOT

# room -> rooms it may import besides itself; "" is webui/__init__.py (the version)
WORDS = {"errors", "messages"}
NOUNS = WORDS | {"types", "settings"}
ALLOWED = {
    "": set(),
    "messages": set(),
    "errors": {"messages"},
    "logs": set(),
    "files": set(),
    "frames": set(),
    "types": {"errors"},
    "settings": {"errors", "types", "files"},
    "proto": set(),
    "text": NOUNS,
    "audio": NOUNS | {"frames"},
    "engine": NOUNS | {"logs", "files", "frames", "text", "audio"},
    "store": NOUNS,
    "studio": NOUNS | {"", "logs", "text", "audio", "engine", "store"},
    "api": NOUNS | {"", "logs", "proto", "studio"},
    "ui": NOUNS | {"", "files", "studio"},
    "client": WORDS | {"", "proto"},
    "doctor": {"errors", "files", "settings", "engine", "store", "app"},
    "cluster": NOUNS | {"", "logs", "frames", "text", "engine", "studio", "client", "app"},
    "app": NOUNS
    | {"", "files", "logs", "text", "audio", "engine", "store", "studio", "api", "ui", "cluster"},
    "__main__": NOUNS | {"", "logs", "app"},
}
HEAVY = ("torch", "torchaudio", "modelscope", "onnxruntime", "transformers")
LATE = ("modelscope_hub", "grpc")  # only when something is fetched, or asked for
FILES = sorted((ROOT / "webui").rglob("*.py"))


@cache
def absolute_imports(path):
    """(line, dotted name) of everything `path` imports, relative names made absolute, at any depth
    of the file.
    """
    return tuple(_imports(path))


def _imports(path):
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # `from .. import text` names a room in its aliases
            yield from (
                (node.lineno, f"{stem}.{alias.name}" if stem == "webui" else stem)
                for alias in node.names
            )


def room_of(dotted):
    """The room of webui that a dotted name lies in, or None when it is not ours."""
    parts = dotted.split(".")
    if parts[0] != "webui":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    room = "" if path == ROOT / "webui" / "__init__.py" else room
    wrong = []
    for line, name in absolute_imports(path):
        target = room_of(name)
        if target is None or target == room:
            continue
        if target not in ALLOWED[room]:
            wrong.append(f"line {line}: {room or 'webui'} imports {target or 'webui'}")
        if (
            room == "studio"
            and target == "engine"
            and not name.startswith(("webui.engine.base", "webui.engine.manager"))
        ):
            wrong.append(
                f"line {line}: the studio sees only engine/base.py and engine/manager.py, not"
                f" {name}"
            )
    assert not wrong, "\n".join(wrong)


COSYVOICE = ROOT / "webui" / "engine" / "cosyvoice"
# part of the CosyVoice room -> parts that it may not import, at any depth of a file
FORBIDDEN = {
    "llm": {"frontend", "flow", "vocoder", "scheduler", "int8", "cuda", "doctor", "engine"},
    "flow": {"frontend", "llm", "vocoder", "scheduler", "int8", "cuda", "doctor", "engine"},
    "vocoder": {"frontend", "llm", "scheduler", "int8", "cuda", "doctor", "engine"},
    "frontend": {"vocoder", "scheduler", "int8", "cuda", "doctor", "engine"},
    "cuda": {"doctor", "engine", "registry", "backend"},
    "scheduler": {"int8", "cuda", "doctor", "engine", "v1", "v2", "v3", "registry"},
    "int8": {"frontend", "vocoder", "scheduler", "cuda", "doctor", "engine", "v1", "v2", "v3"},
    "v1": {"scheduler.runner", "cuda", "doctor", "engine", "registry"},
    "v2": {"scheduler.runner", "cuda", "doctor", "engine", "registry"},
    "v3": {"scheduler.runner", "cuda", "doctor", "engine", "registry"},
}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_inside_the_cosyvoice_room_imports_go_one_way(part):
    files = (COSYVOICE / part).rglob("*.py") if (COSYVOICE / part).is_dir() else ()
    package, wrong = "webui.engine.cosyvoice.", []
    for path in [*files] or [COSYVOICE / f"{part}.py"]:
        for line, name in absolute_imports(path):
            target = name.removeprefix(package)
            if name.startswith(package) and any(
                f"{target}.".startswith(f"{other}.") for other in FORBIDDEN[part]
            ):
                wrong.append(f"{path.name} line {line}: {target}")
    assert not wrong


def test_no_module_imports_itself_by_way_of_others():
    """TYPE_CHECKING and imports inside of functions count."""
    assert circles(ROOT) == []


def test_a_circle_is_found_wherever_the_import_stands(tmp_path):
    room = tmp_path / "webui" / "engine"
    room.mkdir(parents=True)
    for name, source in {
        "__init__": "",
        "one": "from . import two\n",
        "two": "def late():\n    from .three import x\n",
        "three": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .one import y\n",
        "four": "from .one import y\n",
    }.items():
        (room / f"{name}.py").write_text(source)
    assert circles(tmp_path) == [[f"webui.engine.{name}" for name in ("one", "three", "two")]]


def test_every_room_is_in_the_list():
    rooms = {
        p.stem if p.is_file() else p.name
        for p in (ROOT / "webui").iterdir()
        if p.suffix == ".py" or any(p.glob("*.py"))
    } - {"__init__"}
    assert rooms <= set(ALLOWED), "a room without import rules"


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in FILES
        if not any(part.startswith(("cosyvoice", "natural")) for part in p.parts[-3:-1])
    ],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_torch_is_named_only_inside_the_engine_that_needs_it(path):
    assert not [name for _, name in absolute_imports(path) if name.split(".")[0] in HEAVY]


@pytest.mark.parametrize(
    "module",
    [
        m
        for m in ("webui.api", "webui.ui", "webui.app", "webui.client", "webui.engine.espeak")
        if importlib.util.find_spec(m)
    ],
)
def test_opening_loads_no_torch(module):
    code = f"import sys, {module}; print([m for m in {HEAVY + LATE!r} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().splitlines()[-1] == "[]"


def test_the_environment_is_read_in_one_place():
    """Settings are read once; a process of its own may set its thread counts, and the client's
    command line is another program.
    """
    readers = {
        str(p.relative_to(ROOT))
        for p in FILES
        for n in ast.walk(ast.parse(p.read_text("utf-8")))
        if is_environment_read(n)
    }
    assert readers <= {"webui/settings.py", "webui/client/__main__.py"}


def is_environment_read(node):
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("os.getenv", "os.environ.get")
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) == "os.environ"
    )
