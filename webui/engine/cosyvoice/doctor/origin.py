"""Where a model directory comes from: the release that its files are of, and the revision that a
hub's library wrote down. Asks nobody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

Expected = Mapping[str, tuple[int, str]]  # path -> bytes, sha256 ("" where it is not known)
Found = Mapping[str, Mapping]  # path -> bytes, sha256
COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_NOTES = ".cache/huggingface/download"  # a file's commit is the first line of its note
SCOPE_NOTE = ".mv"  # “Revision:master,CreatedAt:1734000000”
ROUND = 1_000_000  # a size that is a multiple was never looked up


def releases(present_files: Found, published: Mapping[str, Expected]) -> tuple[str, ...]:
    """Those of which most files are here and none is another one; several where nothing tells them
    apart.
    """
    fitting = {
        name: sum(
            _is_same(present_files[path], *about) is True
            for path, about in files.items()
            if path in present_files
        )
        for name, files in published.items()
        if not any(
            _is_same(present_files[path], *about) is False
            for path, about in files.items()
            if path in present_files
        )
    }
    most = max(fitting.values(), default=0)
    return tuple(name for name, count in fitting.items() if count == most) if most else ()


def _is_same(own: Mapping, size: int, sha256: str) -> bool | None:
    """None: not enough is known of the published file."""
    if sha256:
        return own["sha256"] == sha256
    return None if own["bytes"] != size and size % ROUND == 0 else own["bytes"] == size


def revision(root: Path) -> str:
    """The commit in the path, as the hubs' caches have it, else in a hub's note beside the files;
    "" where nobody wrote it down.
    """
    for path in (root.absolute(), root.resolve()):
        for part in reversed(path.parts):
            if COMMIT.fullmatch(part):
                return part
    notes = islice((root / HUB_NOTES).glob("**/*.metadata"), 100)
    commits = {line for note in notes if COMMIT.fullmatch(line := _first_line(note))}
    if len(commits) == 1:
        return commits.pop()
    fields = dict(
        part.split(":", 1) for part in _first_line(root / SCOPE_NOTE).split(",") if ":" in part
    )
    return fields.get("Revision", "")[:60]


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(200).strip()
    except OSError:
        return ""
