"""Items A and C: the files of a model directory and its weights. Speaks nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ....messages import Message, message
from ..checkpoint import component_state
from . import origin
from .origin import Expected
from .result import UNTRAINED, WARNED, Result, failed, passed, skipped

if TYPE_CHECKING:
    from ..model_spec import ModelSpec

RANDOM_EDGE = 1.15  # largest singular value, in units of that of a matrix of independent values
MIN_SIDE, MIN_VALUES = 16, 4096  # of a matrix whose spectrum tells anything
MOST_RANDOM = 0.5  # share of matrices


def files(
    root: Path,
    model_spec: ModelSpec,
    expected: Expected,
    published: Mapping[str, Expected] = MappingProxyType({}),
) -> Result:
    """Item A. expected: of the model that the directory is called by; empty where no table is
    known. published: of each release of this generation, by name. Reads every file once.
    """
    needed = [
        *model_spec.required,
        *(part.published(root) for part in model_spec.components.values()),
    ]
    missing = sorted(name for name in needed if not (root / name).is_file())
    own = {
        name: {"bytes": (root / name).stat().st_size, "sha256": _sha256(root / name)}
        for name in sorted(
            {*needed, *expected, *(path for table in published.values() for path in table)}
        )
        if (root / name).is_file()
    }
    differing = sorted(
        name
        for name, (size, digest) in expected.items()
        if name in own
        and (own[name]["bytes"] != size or (digest and own[name]["sha256"] != digest))
    )
    unknown = sorted(
        path.name for path in root.iterdir() if path.is_file() and path.name not in own
    )
    release, commit = origin.releases(own, published), origin.revision(root)
    figures = {
        "release": list(release),
        "revision": commit,
        "files": own,
        "missing": missing,
        "differing": differing,
        "compared": len(expected),
        "unknown": unknown,
    }
    list_name = _origin(release, commit)
    if missing:
        names = ", ".join(missing)
        sentences = message("doctor.files_missing", names=names)
        return failed("A", "files", sentences, figures=figures)
    if differing:
        names = ", ".join(differing[:3]) + " …" * (len(differing) > 3)
        sentences = message(
            "doctor.files_differ",
            n_differing=len(differing),
            n_files=len(own),
            names=names,
            where=list_name,
        )
        way_out = message("doctor.files_fetch")
        return failed("A", "files", sentences, way_out, figures, WARNED)
    if not expected:
        sentences = message("doctor.files_no_list", n_files=len(own), where=list_name)
        return failed("A", "files", sentences, ("", ""), figures, WARNED)
    return passed(
        "A", "files", message("doctor.files_good", n_files=len(own), where=list_name), figures
    )


def _origin(release: tuple[str, ...], commit: str) -> Message:
    """What is known of the origin, as sentences behind another."""
    parts = [
        message("doctor.release", release=release) if release else ("", ""),
        message("doctor.revision", commit=commit[:12]) if commit else ("", ""),
    ]
    return Message(*map("".join, zip(*parts)))


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def tensors(root: Path, model_spec: ModelSpec) -> Result:
    """Item C, first half: every value is finite, and no matrix is all zero."""
    count = 0
    bad: list[str] = []
    for name, value in _weights(root, model_spec):
        count += 1
        if not value.is_floating_point():
            continue
        if not torch.isfinite(value).all():
            bad.append(f"{name} (NaN)")
        elif value.dim() > 1 and not value.any():
            bad.append(f"{name} (0)")
    figures = {"tensors": count, "bad": bad}
    if bad:
        sentences = message("doctor.tensors_damaged", n_damaged=len(bad), count=count, bad=bad[:3])
        return failed("C", "tensors", sentences, figures=figures)
    sentences = message("doctor.tensors_good", count=count)
    return passed("C", "tensors", sentences, figures)


def spectrum(root: Path, model_spec: ModelSpec) -> Result:
    """Item C, second half: training lifts a matrix's largest singular value above that of
    independent values, std (√m + √n).
    """
    edges = {
        name: edge(value)
        for name, value in _weights(root, model_spec)
        if value.dim() >= 2
        and value.is_floating_point()
        and value.numel() >= MIN_VALUES
        and min(len(value), value[0].numel()) >= MIN_SIDE
    }
    if not edges:
        sentences = message("doctor.matrices_small")
        return skipped("C", "spectrum", sentences)
    alike = sorted(name for name, ratio in edges.items() if not ratio > RANDOM_EDGE)
    share = len(alike) / len(edges)
    figures = {
        "matrices": len(edges),
        "share_random": round(share, 3),
        "random": alike[:20],
        "edges": edges,
    }
    if share > MOST_RANDOM:
        sentences = message(
            "doctor.matrices_random", n_alike=len(alike), n_matrices=len(edges), untrained=UNTRAINED
        )
        return failed("C", "spectrum", sentences, figures=figures)
    sentences = message(
        "doctor.matrices_trained", n_trained=len(edges) - len(alike), n_matrices=len(edges)
    )
    return passed("C", "spectrum", sentences, figures)


@torch.no_grad()
def edge(value: Tensor, rounds: int = 12) -> float:
    """The largest singular value of (m, ...), by power iteration from a fixed start, over that of
    independent values of its own spread.
    """
    wide = value.detach().float().flatten(1)
    spread = float(wide.square().mean().sqrt())
    if not math.isfinite(spread) or not spread:
        return math.inf
    x = torch.randn(wide.shape[1], generator=torch.Generator().manual_seed(0))
    for _ in range(rounds):
        y = wide @ x
        x = wide.T @ (y / y.norm())
        x, size = x / x.norm(), float(x.norm())
    return round(size / (spread * sum(math.sqrt(n) for n in wide.shape)), 3)


def _weights(root: Path, model_spec: ModelSpec) -> Iterator[tuple[str, Tensor]]:
    for part in model_spec.components:
        for name, value in component_state(root, part, "fp32", model_spec.components).items():
            yield f"{part}.{name}", value
