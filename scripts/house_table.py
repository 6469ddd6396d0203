#!/usr/bin/env python
"""Lines, files and shape of the house, room by room: what a reader has before them.

    python scripts/house_table.py            # this working tree
    python scripts/house_table.py DIR        # another one, for instance an older commit

Per room: files, lines, mean and longest file. Then lines over 100 columns, import circles
(TYPE_CHECKING included), lines of the page in Python and JavaScript, and places where the page
reaches into what Gradio draws (selectors of its classes and test ids).
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_COLUMNS = 100
ROOMS = ("webui", "scripts", "tests")
# What Gradio's own components are known by in the page: their test ids, classes and tags.
GRADIO = re.compile(
    r"gradio-|data-testid|\.(?:block|wrap|prose|gallery|upload|tab-nav|tabs?|tabitem|form|gap|panel"
    r"|container|label-wrap|toast-\w+|svelte-\w+|icon-button|component-wrapper|waveform-container"
    r"|record-button|stop-button|settings-wrapper|timeago|mic-select)\b"
)


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def rooms(root: Path) -> Iterator[tuple[str, list[Path]]]:
    """(name, files) of every room that has Python files."""
    for top in ROOMS:
        files = sorted((root / top).rglob("*.py"))
        if top != "webui":
            yield top, files
            continue
        yield top, files
        for room in sorted(path for path in (root / top).iterdir() if path.is_dir()):
            inside = [path for path in files if room in path.parents]
            if inside:
                yield f"{top}/{room.name}", inside


def circles(root: Path) -> list[list[str]]:
    """Groups of modules that import each other, at any depth of a file; each group sorted."""
    known = {
        _dotted(root, path): path
        for path in (root / "webui").rglob("*.py")
        if path.parent.name != "worker"  # programs started by their path
    }
    edges = {name: set(_imported(name, path, known)) - {name} for name, path in known.items()}
    reach = {name: _reached(name, edges) for name in edges}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in edges
        if name in reach[name]
    }
    return sorted(map(list, groups), key=len, reverse=True)


def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    todo, seen = list(edges[start]), set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += edges[name]
    return seen


def _dotted(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{stem}.{alias.name}"
                if full in known or stem in known:
                    yield full if full in known else stem


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    root = parser.parse_args().root.resolve()
    print("| room | files | lines | mean | longest |\n|---|---|---|---|---|")
    for name, files in rooms(root):
        counts = {path: len(lines_of(path)) for path in files}
        longest = max(counts, key=lambda path: counts[path])
        total = sum(counts.values())
        mean = total // len(files)
        print(f"| {name} | {len(files)} | {total:,} | {mean} | {longest.name} {counts[longest]} |")
    scripts = sorted((root / "assets").rglob("*.js"))
    wide = [
        sum(len(line) > MAX_COLUMNS for path in files for line in lines_of(path))
        for files in ([p for _, fs in rooms(root) if _ in ROOMS for p in fs], scripts)
    ]
    page = [path for path in scripts if path.parent.name == "page"]
    hooks = sum(len(GRADIO.findall(line)) for path in page for line in lines_of(path))
    print(f"\nlines over {MAX_COLUMNS} columns: Python {wide[0]}, JavaScript {wide[1]}")
    print(f"JavaScript: {len(scripts)} files, {sum(len(lines_of(p)) for p in scripts):,} lines")
    print(f"places in assets/page that name what Gradio draws: {hooks}")
    found = circles(root)
    print(f"import circles: {len(found)}" + "".join(f"\n  {len(c)}: {', '.join(c)}" for c in found))


if __name__ == "__main__":
    main()
