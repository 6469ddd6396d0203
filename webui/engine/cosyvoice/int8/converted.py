"""The int8 form of the language model on disk: made once per model, checked at every start, made
again when it fits no more.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch

from ....errors import NotReady
from ..checkpoint import (
    COMPONENTS,
    DTYPES,
    Parts,
    component_state,
    load_state,
    source_mark,
    source_of,
    write_checked,
)
from ..dims_v1 import LmDimsV1
from ..llm.dims import LmDims
from ..llm.text_lm import READY
from .quantise import BLOCK
from .slots import SlotDims

log = logging.getLogger(__name__)
FILE = "kaikou-llm-int8.safetensors"  # of the usual one
OnProgress = Callable[[float], None]  # share done of a conversion; not called when there is none


@dataclass(frozen=True)
class ExportFormat:
    """name: raised when the graph or its values change. values: of dims, published tensors and
    on_progress, what goes into the file.
    """

    name: str
    values: Callable[[Any, Mapping[str, torch.Tensor], OnProgress], dict[str, np.ndarray]]


def _qwen2(
    dims: LmDims, state: Mapping[str, torch.Tensor], on_progress: OnProgress
) -> dict[str, np.ndarray]:
    from .weights import qwen2  # brings in the onnx package, which no later start needs

    return qwen2(dims, state, on_progress)


def _relative(
    dims: LmDimsV1, state: Mapping[str, torch.Tensor], on_progress: OnProgress
) -> dict[str, np.ndarray]:
    from .weights import relative

    return relative(dims, state, on_progress)


QWEN2 = ExportFormat("kaikou-int8-3", _qwen2)
RELATIVE = ExportFormat("kaikou-int8-first-6", _relative)


def file_in(root: Path, parts: Parts) -> Path:
    """Each of the language models that a directory may have keeps its own."""
    return root / FILE.replace("llm", parts["llm"].name)


def fits(dims: SlotDims) -> bool:
    """ONNX Runtime's attention takes heads of whole 16s; the published model has 64."""
    return dims.head_size % 16 == 0


def load(
    root: Path,
    dims: LmDims,
    on_progress: OnProgress = lambda share: None,
    parts: Parts = COMPONENTS,
    form: ExportFormat = QWEN2,
) -> Mapping[str, np.ndarray]:
    """What Int8Lm needs, mapped from the file when it fits the published weights, else made from
    them and written beside them.

    Making takes about 10 s and 1.2 GB at the real size. Where nothing can be written it stays in
    memory. Raises NotReady.
    """
    source = _source(root, parts)
    cached = _read(file_in(root, parts), _mark(root, dims, source, parts, form) if source else "")
    return cached if cached is not None else make(root, dims, on_progress, parts, form)


def make(
    root: Path,
    dims: LmDims,
    on_progress: OnProgress = lambda share: None,
    parts: Parts = COMPONENTS,
    form: ExportFormat = QWEN2,
) -> Mapping[str, np.ndarray]:
    """Convert and write, whatever is there. Raises NotReady."""
    source, file = _source(root, parts) or "fp32", file_in(root, parts)
    arrays = form.values(dims, component_state(root, "llm", source, parts), on_progress)
    try:
        write_checked(
            file,
            {name: torch.from_numpy(array) for name, array in arrays.items()},
            form.name,
            _mark(root, dims, source, parts, form),
        )
    except (OSError, safetensors.SafetensorError) as fault:
        log.warning(
            "%s cannot be written (%s): the language model is converted in memory, at every start.",
            file.name,
            fault,
        )
        return arrays
    return _read(file, "") or arrays  # mapped: the copy in memory can go


def memory(dims: LmDims) -> int:
    """Bytes that the loaded language model holds: linears packed twice, and the table of text ids
    as far as the system keeps it in memory.
    """
    d = dims
    per_layer = d.hidden * (2 * d.hidden + 2 * d.kv_heads * d.head_size + 3 * d.intermediate)
    linears = d.layers * per_layer + d.rows * d.hidden
    return int(linears * (2 + 4 / BLOCK)) + 2 * d.text_rows * d.hidden + 4 * d.rows * d.hidden


def relative_memory(dims: LmDimsV1, size: int) -> int:
    """Bytes of the first generation's: layers and head packed twice, their tables of positions, and
    the text encoder in torch, `size` bytes per value.
    """
    d, e = dims.body, dims.encoder
    linears = d.layers * (4 * d.hidden**2 + 2 * d.hidden * d.inner) + dims.rows * d.hidden
    tables = 4 * d.layers * d.hidden * (d.hidden + READY)
    encoder = (
        e.layers * (5 * e.hidden**2 + 2 * e.hidden * e.inner)
        + dims.text_rows * dims.text_width
        + 2 * dims.rows * d.hidden
    )
    return int(linears * (2 + 4 / BLOCK)) + tables + encoder * size


def is_there(
    root: Path, dims: LmDims, parts: Parts = COMPONENTS, form: ExportFormat = QWEN2
) -> bool:
    """True when the next start need not convert. Looks at names only, not at every byte."""
    source, file = _source(root, parts), file_in(root, parts)
    return file.is_file() and (
        not source or source_of(file) == _mark(root, dims, source, parts, form)
    )


def _source(root: Path, parts: Parts) -> str:
    """The most exact precision in which the published weights are there; empty when they are
    gone.
    """
    part = parts["llm"]
    if (root / part.published(root)).exists():
        return "fp32"
    return next((dtype for dtype in DTYPES if (root / part.converted(dtype)).is_file()), "")


def _mark(root: Path, dims: LmDims, source: str, parts: Parts, form: ExportFormat) -> str:
    return hashlib.sha256(
        f"{form.name} {dims} {source_mark(root, 'llm', source, parts)}".encode()
    ).hexdigest()[:32]


def _read(file: Path, mark: str) -> Mapping[str, np.ndarray] | None:
    """None, with the reason in the log, unless the file is whole and was made from these weights
    (any, when `mark` is empty).
    """
    if not file.is_file():
        return None
    if mark and source_of(file) != mark:
        log.warning(
            "%s was made from other weights or by another version and is made again.", file.name
        )
        return None
    try:
        return {name: tensor.numpy() for name, tensor in load_state(file).items()}
    except NotReady as fault:
        if not mark:
            raise
        log.warning("%s It is made again.", fault.en)
        return None
