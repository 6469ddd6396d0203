#!/usr/bin/env python
"""How much of the engine the generations of the model share, and whether anything was copied: lines
of code, and blocks that occur twice.

    python scripts/count_lines.py
        the table, and every copied block of more than 10 lines; exit code 1 when there is one
    python scripts/count_lines.py --alike
        also blocks that are the same but for names and numbers (told, never counted as a fault)

A line of code is one that is not empty, no comment, no docstring and no import. Shared is what a
generation's own module reaches by imports and another one reaches too.
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "webui.engine"
COMMON = f"{ENGINE}.cosyvoice.engine"  # what runs every generation
OWN = {
    "cosyvoice1": f"{ENGINE}.cosyvoice.v1",
    "cosyvoice2": f"{ENGINE}.cosyvoice.v2",
    "cosyvoice3": f"{ENGINE}.cosyvoice.v3",
}
MOST = 10  # lines that may be alike in two places


@dataclass(frozen=True)
class Line:
    file: str
    number: int
    text: str


@dataclass(frozen=True)
class Copy:
    """The same `lines` lines of code at two places."""

    lines: int
    first: Line
    second: Line

    def words(self) -> str:
        return (
            f"{self.lines} lines: {self.first.file}:{self.first.number} and"
            f" {self.second.file}:{self.second.number}"
        )


def code_lines(path: Path, root: Path = ROOT) -> list[Line]:
    """Runs of blanks inside a line count as one."""
    source = path.read_text("utf-8")
    skipped = _skipped(ast.parse(source))
    line_numbers = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type
        not in (
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
            tokenize.ENDMARKER,
        )
    }
    name = str(path.relative_to(root))
    rows = enumerate(source.splitlines(), 1)
    return [
        Line(name, n, re.sub(r"\s+", " ", text.partition("  #")[0].strip()))
        for n, text in rows
        if n in line_numbers and n not in skipped
    ]


def _skipped(tree: ast.Module) -> set[int]:
    """Lines of docstrings and imports."""
    out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            out |= set(range(node.lineno, node.end_lineno + 1))
        body = getattr(node, "body", None)
        head = body[0] if isinstance(body, list) and body else None
        if (
            isinstance(head, ast.Expr)
            and isinstance(head.value, ast.Constant)
            and isinstance(head.value.value, str)
        ):
            out |= set(range(head.lineno, head.end_lineno + 1))
    return out


def copies(files: Iterable[list[Line]], most: int = MOST) -> list[Copy]:
    """Every block of more than `most` lines that occurs twice, as long as it goes, the longest
    first.
    """
    files = list(files)
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for f, lines in enumerate(files):
        for i in range(len(lines) - most):
            places[tuple(line.text for line in lines[i : i + most + 1])].append((f, i))
    repeats = []
    for occurrences in places.values():
        for k, (f, i) in enumerate(occurrences):
            for g, j in occurrences[k + 1 :]:
                if i and j and files[f][i - 1].text == files[g][j - 1].text:
                    continue  # it began before
                length = next(
                    n
                    for n in range(most + 1, 1 << 20)
                    if i + n >= len(files[f])
                    or j + n >= len(files[g])
                    or files[f][i + n].text != files[g][j + n].text
                )
                if f != g or i + length <= j:
                    repeats.append(Copy(length, files[f][i], files[g][j]))
    return sorted(repeats, key=lambda copy: -copy.lines)


def blurred(lines: list[Line]) -> list[Line]:
    """With every name and number made equal: what is left is the shape."""

    def blur(text: str) -> str:
        text = re.sub(r"\"[^\"]*\"|'[^']*'", "S", text)
        return re.sub(
            r"[A-Za-z_]\w*|\d[\w.]*", lambda m: m[0] if keyword.iskeyword(m[0]) else "x", text
        )

    return [Line(line.file, line.number, blur(line.text)) for line in lines]


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Dotted name -> file of everything in the engine's room."""
    out = {}
    for path in sorted((root / "webui" / "engine").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


def imported(name: str, path: Path, module_paths: Mapping[str, Path]) -> set[str]:
    """Modules of the room that this one imports, at any depth of the file."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    out = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = (
                ".".join(
                    [
                        *package[: len(package) - node.level + 1],
                        *([node.module] if node.module else []),
                    ]
                )
                if node.level
                else node.module
            )
            out |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
    return out & module_paths.keys()


def reached(start: Iterable[str], module_paths: Mapping[str, Path]) -> set[str]:
    """A module's package counts with it.

    Another generation's own module is no way on: who takes two functions from it does not use all
    that it does.
    """
    todo, visited_names = [s for s in start if s in module_paths], set()
    closed = set(OWN.values()) - set(todo)
    while todo:
        name = todo.pop()
        if name not in visited_names and name not in closed:
            visited_names.add(name)
            todo += imported(name, module_paths[name], module_paths) | (
                {name.rpartition(".")[0]} & module_paths.keys()
            )
    return {name for name in visited_names if name.startswith(f"{ENGINE}.cosyvoice")}


def shares(module_paths: Mapping[str, Path], sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """generation -> lines used by all, by one other, by it alone.

    Only those generations that are there.
    """
    uses = {
        engine: reached((COMMON, own), module_paths)
        for engine, own in OWN.items()
        if own in module_paths
    }
    out = {}
    for engine, own_uses in uses.items():
        count = {name: sum(name in other_uses for other_uses in uses.values()) for name in own_uses}
        every = len(uses)
        out[engine] = {
            "all": sum(sizes[n] for n, c in count.items() if c == every),
            "some": sum(sizes[n] for n, c in count.items() if 1 < c < every),
            "own": sum(sizes[n] for n, c in count.items() if c == 1 < every),
        }
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--alike",
        action="store_true",
        help="also tell blocks that are the same but for names and numbers",
    )
    args = parser.parse_args()
    module_paths = modules()
    lines = {name: code_lines(path) for name, path in module_paths.items()}
    print(f"{'generation':<12} {'shared by all':>14} {'by two':>8} {'its own':>8} {'shared':>8}")
    for engine, row in shares(
        module_paths, {name: len(rows) for name, rows in lines.items()}
    ).items():
        print(
            f"{engine:<12} {row['all']:>14,} {row['some']:>8,} {row['own']:>8,}"
            f" {(row['all'] + row['some']) / max(1, sum(row.values())):>8.0%}"
        )
    print(
        f"the engine's room: {sum(map(len, lines.values())):,} lines of code in {len(lines)} files"
    )
    repeats = copies(lines.values())
    print(
        f"blocks of more than {MOST} lines that occur twice: {len(repeats)}"
        + "".join(f"\n  {copy.words()}" for copy in repeats)
    )
    if args.alike:
        alike = copies(map(blurred, lines.values()))
        print(
            f"the same but for names and numbers: {len(alike)}"
            + "".join(f"\n  {copy.words()}" for copy in alike)
        )
    return 1 if repeats else 0


if __name__ == "__main__":
    sys.exit(main())
