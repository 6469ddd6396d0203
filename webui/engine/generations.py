"""Which generation of CosyVoice a directory holds, by the names of its files only: for who must
know before torch is there.
"""

from __future__ import annotations

from pathlib import Path

GENERATIONS = {
    "cosyvoice2.yaml": "cosyvoice2",
    "cosyvoice3.yaml": "cosyvoice3",
    "cosyvoice.yaml": "cosyvoice1",
}  # yaml -> name of its engine


def yamls(root: Path) -> list[str]:
    """Those of a generation that are in `root`; more than one where files of several are mixed."""
    return [name for name in GENERATIONS if (root / name).is_file()]


def engine_of(root: Path) -> str:
    """The name of the engine for a model directory, "" where it holds no model.

    Where yamls of several generations are mixed the engine itself decides, which looks into the
    files.
    """
    return next((GENERATIONS[name] for name in yamls(root)), "")


def is_model(root: Path) -> bool:
    return bool(yamls(root))
