"""Which generation of CosyVoice a directory holds, by the names of its files only: for callers
that must know before torch is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Generation(NamedTuple):
    """signature_tensor: a tensor of flow.pt that no other generation has."""

    engine: str
    title: str
    signature_tensor: str


GENERATIONS = {
    "cosyvoice2.yaml": Generation("cosyvoice2", "CosyVoice2", "encoder.up_embed.out.0.weight"),
    "cosyvoice3.yaml": Generation(
        "cosyvoice3", "Fun-CosyVoice3-0.5B", "decoder.estimator.time_embed.time_mlp.0.weight"
    ),
    "cosyvoice.yaml": Generation("cosyvoice1", "CosyVoice-300M", "length_regulator.model.0.weight"),
}  # by the name of the yaml file


def yamls(root: Path) -> list[str]:
    """Names of the yaml files in `root` that belong to a generation; more than one where files of
    several generations are mixed.
    """
    return [name for name in GENERATIONS if (root / name).is_file()]


def engine_of(root: Path) -> str:
    """The name of the engine for a model directory, "" where it holds no model.

    Where yamls of several generations are mixed the engine itself decides, which looks into the
    files.
    """
    return next((GENERATIONS[name].engine for name in yamls(root)), "")


def is_model(root: Path) -> bool:
    return bool(yamls(root))
