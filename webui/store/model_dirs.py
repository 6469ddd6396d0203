"""Model directories on this disk: which folders are whole models, which one was chosen last.

What makes a folder a model it is told; never looks inside a file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .private_files import make_folder, write_file

log = logging.getLogger(__name__)
CHOSEN = "model"  # file in the data folder: the name of the model that somebody chose last
NETWORKS = ("llm", "flow", "hift")
FILES = (
    "{}.pt",
    "{}.*.pt",
    "kaikou-{}-*.safetensors",
)  # as published, published in another training (llm.rl.pt), converted
EngineOf = Callable[[Path], str]  # the name of the engine for a folder, "" when it is no model


@dataclass(frozen=True)
class Installed:
    """name: of its folder. engine: the generation, as prompts and takes name it. is_whole: every
    network is there, as published or converted.
    """

    name: str
    path: Path
    engine: str
    is_whole: bool


def read(folder: Path, engine_of: EngineOf) -> Installed | None:
    """None when the folder is no model's.

    A folder's name says nothing: it may have been renamed.
    """
    try:
        engine = engine_of(folder)
        is_whole = bool(engine) and all(
            any(next(folder.glob(like.format(n)), None) for like in FILES) for n in NETWORKS
        )
    except OSError:  # it may not be looked into
        return None
    return Installed(folder.name, folder, engine, is_whole) if engine else None


def find(root: Path, engine_of: EngineOf) -> list[Installed]:
    """The folder itself when it is a model, else the models right below it, by name.

    Empty when there is no such folder, or it may not be read.
    """
    own = read(root, engine_of)
    if own is not None:
        return [own]
    try:
        below = sorted(
            path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")
        )
    except OSError:
        return []
    return [model for path in below if (model := read(path, engine_of)) is not None]


def first(
    models: Iterable[Installed], engines: Iterable[str], names: Iterable[str]
) -> Installed | None:
    """The one to begin with: of the earliest generation in `engines`, and of these the earliest in
    `names`; others after them, by name.
    """
    order, name_order = list(engines), list(names)
    ranked = [
        (
            order.index(m.engine),
            name_order.index(m.name) if m.name in name_order else len(name_order),
            m.name,
            m,
        )
        for m in models
        if m.engine in order
    ]
    return min(ranked, key=lambda r: r[:3])[-1] if ranked else None


def remember(data_dir: Path, name: str) -> None:
    """For the next start. Where that cannot be written, it is forgotten."""
    try:
        make_folder(data_dir)
        write_file(data_dir / CHOSEN, f"{name}\n".encode())
    except OSError as error:
        log.warning("the chosen model is not remembered: %s", error)


def remembered(data_dir: Path) -> str:
    """ "" when nobody chose."""
    try:
        return (data_dir / CHOSEN).read_text("utf-8").strip()[:200]
    except (OSError, UnicodeDecodeError):
        return ""
