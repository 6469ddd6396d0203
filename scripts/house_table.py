#!/usr/bin/env python
"""Lines, files and shape of the house, room by room: what a reader has before them.

    python scripts/house_table.py            # this working tree
    python scripts/house_table.py DIR        # another one, for instance an older commit

Per room: files, lines, mean and longest file. Then lines over 100 columns, import circles
(TYPE_CHECKING included), lines of the page in JavaScript, and the places where the page names what
Gradio draws: selectors of its classes and test ids, in the scripts and in the style.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_COLUMNS = 100
ROOMS = ("webui", "scripts", "tests")
# A comment, a string or a template of JavaScript: what stands outside of them is no selector.
SCRIPT_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*\""""
    r"""|`(?:\\.|\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\}|[^`\\])*`""",
    re.S,
)
# Every character that a selector is made of; a sentence, a path or a piece of HTML has others.
SELECTOR = re.compile(r"[\w\s#.:=()>+~,\"'*^$\[\]-]*")
# The key of a sentence of the page, or the beginning of one, looks like a tag with a class.
SENTENCE = re.compile(r"(?!(?:audio|button|div|fieldset|input|label|span)\.)[a-z]+\.[\w.]*")
PART = re.compile(r"\.([a-zA-Z][\w-]+)|\[(data-(?:testid|tab-id))")


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
    module_paths = {
        _dotted(root, path): path
        for path in (root / "webui").rglob("*.py")
        if path.parent.name != "worker"  # programs started by their path
    }
    edges = {
        name: set(_imported(name, path, module_paths)) - {name}
        for name, path in module_paths.items()
    }
    reach = {name: _reached(name, edges) for name in edges}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in edges
        if name in reach[name]
    }
    return sorted(map(list, groups), key=len, reverse=True)


def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    todo, visited_names = list(edges[start]), set()
    while todo:
        name = todo.pop()
        if name not in visited_names:
            visited_names.add(name)
            todo += edges[name]
    return visited_names


def _dotted(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, path: Path, module_paths: dict[str, Path]) -> Iterator[str]:
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in module_paths)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{stem}.{alias.name}"
                if full in module_paths or stem in module_paths:
                    yield full if full in module_paths else stem


def hooks(root: Path) -> Iterator[tuple[str, str]]:
    """(file, name) of each place where the page names a class or a test id that Gradio draws.

    A place is a rule of the style or a string of a script; a name counts once in each. Ids, classes
    that begin with kk-, roles and native elements are the page's own or everybody's: no hooks. The
    page of a shared link (demo) is drawn without Gradio.
    """
    gradio_classes = classes_of_gradio()
    for path in sorted((root / "assets").glob("p*/*.js")):
        for text in SCRIPT_TEXT.findall(path.read_text("utf-8")) if path.stem != "demo" else ():
            text = re.sub(r"\$\{[^{}]*\}", "", text[1:-1])
            if SELECTOR.fullmatch(text) and not SENTENCE.fullmatch(text):
                yield from ((path.name, name) for name in sorted(named(text) & gradio_classes))
    style = re.sub(
        r"/\*.*?\*/", "", (root / "assets/style/page.css").read_text("utf-8"), flags=re.S
    )
    for selectors in re.findall(r"([^{};]*)\{", style):
        if not selectors.lstrip().startswith("@"):
            yield from (("page.css", name) for name in sorted(named(selectors)))


def named(selectors: str) -> set[str]:
    """Return the classes and test ids in them that are not the page's own."""
    names = {a or b for a, b in PART.findall(selectors)}
    return {name for name in names if not re.match("kk(-|$)", name)}


def classes_of_gradio() -> set[str]:
    """Return every class in the installed Gradio's own style sheets, and its two attributes."""
    sheets = files("gradio") / "templates" / "frontend" / "assets"
    text = "".join(f.read_text("utf-8") for f in sheets.iterdir() if f.name.endswith(".css"))
    return {"data-testid", "data-tab-id", *re.findall(r"\.([a-zA-Z][\w-]*)", text)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    root = parser.parse_args().root.resolve()
    print("| room | files | lines | mean | longest |\n|---|---|---|---|---|")
    for name, modules in rooms(root):
        counts = {path: len(lines_of(path)) for path in modules}
        longest = max(counts, key=lambda path: counts[path])
        total = sum(counts.values())
        mean = total // len(modules)
        print(
            f"| {name} | {len(modules)} | {total:,} | {mean} | {longest.name} {counts[longest]} |"
        )
    scripts = sorted((root / "assets").rglob("*.js"))
    wide = [
        sum(len(line) > MAX_COLUMNS for path in files for line in lines_of(path))
        for files in ([p for _, fs in rooms(root) if _ in ROOMS for p in fs], scripts)
    ]
    places = Counter(file for file, _ in hooks(root))
    print(f"\nlines over {MAX_COLUMNS} columns: Python {wide[0]}, JavaScript {wide[1]}")
    print(f"JavaScript: {len(scripts)} files, {sum(len(lines_of(p)) for p in scripts):,} lines")
    print(f"places that name what Gradio draws: {places.total()}, {dict(places)}")
    import_circles = circles(root)
    print(
        f"import circles: {len(import_circles)}"
        + "".join(f"\n  {len(c)}: {', '.join(c)}" for c in import_circles)
    )


if __name__ == "__main__":
    main()
