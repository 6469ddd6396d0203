"""Weight files in, named tensors out, put into a module key by key.

Knows names and shapes; blind to what the layers compute.
"""

from __future__ import annotations

import hashlib
import json
import logging
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...errors import NotReady, StorageFull
from ...messages import message
from . import file_checks
from .model_faults import model_fault

log = logging.getLogger(__name__)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WRAPPERS = (
    "state_dict",
    "model",
    "module",
)  # under which training codes keep the tensors, beside their own notes
PARALLEL = "module."  # before every key, from training on several devices
OLD_WEIGHT_NORM = {
    ".weight_g": ".parametrizations.weight.original0",
    ".weight_v": ".parametrizations.weight.original1",
}
FORMAT = "kaikou-1"


@dataclass(frozen=True)
class Component:
    """One of the three networks: its published file and what its keys need.

    `exact`: stays fp32 whatever is asked for.
    """

    name: str
    delete: tuple[str, ...] = ()  # substrings taken out of every key
    unused: tuple[str, ...] = ()  # keys, or with a point at the end what keys begin with
    exact: bool = False
    also: tuple[str, ...] = ()  # files that serve where `file` is missing
    # from the published tensors to those of our module
    reform: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict

    @property
    def file(self) -> str:
        return f"{self.name}.pt"

    def published(self, root: Path) -> str:
        """The published file's name in `root`: of the first that is there, else of the one that
        should be.
        """
        return next((name for name in (self.file, *self.also) if (root / name).exists()), self.file)

    def converted(self, dtype: str) -> str:
        return f"kaikou-{self.name}-{'fp32' if self.exact else dtype}.safetensors"


COMPONENTS = {
    "llm": Component(
        "llm", unused=("llm.model.lm_head.weight",)
    ),  # a copy of the embedding that inference never reads
    "flow": Component("flow"),
    "hift": Component(
        "hift", delete=("generator.",), unused=("discriminator.",), exact=True
    ),  # its phase needs fp32, and it is small
}


Parts = Mapping[str, Component]  # "llm", "flow" and "hift" of a generation


class _NoInit(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def bare() -> Iterator[None]:
    """Modules made inside have shapes only, for `assign`.

    Their initial values are not drawn: on the meta device that alone would import half of torch's
    compiler, seconds at every start.
    """
    with torch.device("meta"), _NoInit():
        yield


def load_state(path: Path, prefix_fixups: Sequence[str] = ()) -> dict[str, Tensor]:
    """A flat dict of tensors from a `.pt` (weights only, every record checked) or `.safetensors`
    file, memory-mapped on the CPU.

    prefix_fixups: substrings to take out of every key. Raises NotReady naming file and fault; never
      runs anything from the file.
    """
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _unwrap(read_pt(path))
    out = {}
    for key, value in state.items():
        if isinstance(value, int | float):  # a note of the training: epoch, step
            continue
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise model_fault(
                path.name,
                message("file.tensors_only"),
                message("file.kind_under_name", kind=kind, key_name=str(key)[:80]),
            )
        for cut in prefix_fixups:
            key = key.replace(cut, "")
        out[key] = value
    if out and all(key.startswith(PARALLEL) for key in out):
        return {key.removeprefix(PARALLEL): value for key, value in out.items()}
    return out


def _unwrap(state: dict) -> dict:
    """The table of tensors, where it is kept under a name beside other things."""
    inner = next((state[name] for name in WRAPPERS if isinstance(state.get(name), dict)), None)
    is_wrapped = (
        inner is not None
        and all(isinstance(k, str) for k in inner)
        and not any(isinstance(v, Tensor) for v in state.values())
    )
    return inner if is_wrapped else state


def read_pt(path: Path) -> dict:
    file_checks.check_records(path.parent, path.name)
    expected = message("file.pytorch_tensors")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as e:
        raise model_fault(path.name, expected, message("file.objects_run_code")) from e
    except (
        RuntimeError,
        ValueError,
        KeyError,
        EOFError,
        OSError,
        AttributeError,
        TypeError,
        IndexError,
        AssertionError,
    ) as e:
        raise model_fault(
            path.name, expected, message("file.something_else_kind", kind=type(e).__name__)
        ) from e
    if not isinstance(state, dict) or not all(isinstance(k, str) for k in state):
        raise model_fault(path.name, message("file.dict_of_tensors"), type(state).__name__)
    return state


def _read_safetensors(path: Path) -> dict:
    expected = message("file.safetensors")
    file_checks.head(path.parent, path.name, expected)
    try:
        with safetensors.safe_open(path, "pt") as f:
            meta, state = f.metadata() or {}, {key: f.get_tensor(key) for key in f.keys()}
        sums = dict(json.loads(meta.get("sums", "{}")))
    except (safetensors.SafetensorError, OSError, ValueError) as e:
        raise model_fault(path.name, expected, message("file.damaged_or_cut")) from e
    bad = next(
        (key for key, total in sums.items() if key not in state or _sum(state[key]) != total), None
    )
    if bad is not None:
        raise model_fault(
            path.name, message("file.tensors_fit_checksums"), message("file.damaged_bytes", bad=bad)
        )
    return state


def _sum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def fold_weight_norm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gain and direction pairs become plain `.weight` keys: w = g v / |v|, norm over all dimensions
    but the first.
    """
    for old, new in OLD_WEIGHT_NORM.items():
        state = {
            key.removesuffix(old) + new if key.endswith(old) else key: value
            for key, value in state.items()
        }
    out = {}
    for key, value in state.items():
        stem, _, part = key.rpartition(".parametrizations.weight.original")
        if not stem:
            out[key] = value
        elif part == "1":
            gain = state.get(f"{stem}.parametrizations.weight.original0")
            if gain is None:
                raise model_fault(
                    "hift.pt", message("file.gain", stem=stem), message("file.only_direction")
                )
            wide = value.float()
            norm = wide.flatten(1).norm(dim=1).reshape(-1, *[1] * (value.dim() - 1))
            out[f"{stem}.weight"] = (gain.float() * wide / norm).to(value.dtype)
    return out


def assign(
    module: nn.Module, state: dict[str, Tensor], file: str = "", dtype: torch.dtype | None = None
) -> nn.Module:
    """Put `state` into `module`: keys and shapes must fit exactly, the first that does not is named
    (NotReady). Returns the module, without gradients, in eval mode. Tensors are used as they are
    (memory-mapped ones stay so) unless `dtype` differs.
    """
    expected = module.state_dict()
    name = file or type(module).__name__
    for key, own_tensor in expected.items():
        if key not in state:
            raise model_fault(
                name,
                message("file.tensor", name=key, shape=str(list(own_tensor.shape))),
                message("file.none_of_name"),
            )
        if state[key].shape != own_tensor.shape:
            shapes = str(list(own_tensor.shape)), str(list(state[key].shape))
            raise model_fault(
                name,
                message("file.with_shape", name=key, shape=shapes[0]),
                shapes[1],
            )
    extra = next((key for key in state if key not in expected), None)
    if extra is not None:
        raise model_fault(
            name,
            message("file.known_tensors", n=len(expected)),
            message("file.unknown_tensor", extra=extra),
        )
    ready = {
        k: v if dtype is None or not v.is_floating_point() else v.to(dtype)
        for k, v in state.items()
    }
    module.load_state_dict(ready, strict=True, assign=True)
    return module.requires_grad_(False).eval()


def component_state(
    root: Path, name: str, dtype: str = "fp32", parts: Parts = COMPONENTS
) -> dict[str, Tensor]:
    """The tensors of "llm", "flow" or "hift" as the modules want them, from the converted file when
    it was made from this very source (or when the source is gone), else from the published file.
    Raises NotReady.
    """
    part = parts[name]
    target_dtype, source = DTYPES["fp32" if part.exact else dtype], part.published(root)
    converted = converted_form(root, part, dtype)
    if converted.is_file():
        if not (root / source).exists() or source_of(converted) == file_checks.fingerprint(
            root, source
        ):
            try:
                return {
                    k: v.to(target_dtype) if v.is_floating_point() else v
                    for k, v in load_state(converted).items()
                }
            except NotReady as fault:
                if not (root / source).exists():
                    raise
                log.warning("%s Using %s.", fault.en, source)
        else:
            log.warning("%s was made from another %s and is not used.", converted.name, source)
    return published_state(root, part, "fp32" if part.exact else dtype)


def converted_form(root: Path, part: Component, dtype: str) -> Path:
    """The converted file for `dtype`, there or not; where the published file is gone, one in
    another dtype must serve.
    """
    own = root / part.converted(dtype)
    if own.is_file() or (root / part.published(root)).exists():
        return own
    return next((other for d in DTYPES if (other := root / part.converted(d)).is_file()), own)


def published_state(root: Path, part: Component, dtype: str) -> dict[str, Tensor]:
    """The tensors of the published file as the module wants them: unused ones dropped, weight norm
    folded, reformed, floats in `dtype`.
    """
    state = load_state(root / part.published(root), part.delete)
    unused = tuple(start for start in part.unused if start.endswith("."))
    state = fold_weight_norm(
        {k: v for k, v in state.items() if k not in part.unused and not k.startswith(unused)}
    )
    return {
        k: v.to(DTYPES[dtype]) if v.is_floating_point() else v
        for k, v in part.reform(state).items()
    }


def convert(root: Path, name: str, dtype: str, parts: Parts = COMPONENTS) -> Path:
    """Write the converted, memory-mappable form of one component beside its source; returns its
    path. Raises NotReady, StorageFull.
    """
    part = parts[name]
    state = {
        k: v.contiguous()
        for k, v in published_state(root, part, "fp32" if part.exact else dtype).items()
    }
    target = root / part.converted(dtype)
    try:
        write_checked(target, state, FORMAT, file_checks.fingerprint(root, part.published(root)))
    except (OSError, safetensors.SafetensorError) as e:
        why = str(getattr(e, "strerror", "") or e)[:120]
        raise StorageFull("storage_denied.converted_weights", name=target.name, why=why) from e
    return target


def write_checked(target: Path, state: dict[str, Tensor], form: str, source: str) -> None:
    """A memory-mappable file with a checksum per tensor, whole or not there.

    Raises OSError or SafetensorError when it cannot be written.
    """
    meta = {
        "format": form,
        "source": source,
        "sums": json.dumps({k: _sum(v) for k, v in state.items()}),
    }
    unfinished = target.with_name(target.name + ".part")
    try:
        save_file(state, unfinished, meta)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def source_mark(root: Path, name: str, dtype: str = "fp32", parts: Parts = COMPONENTS) -> str:
    """Names the published weights that `component_state` would give: the same before and after
    conversion, with and without the source.
    """
    part = parts[name]
    source = part.published(root)
    return (
        file_checks.fingerprint(root, source)
        if (root / source).exists()
        else source_of(converted_form(root, part, dtype))
    )


def marked(root: Path, precision: str, parts: Parts = COMPONENTS) -> str:
    """Names what is heard of a directory: voices made with other weights do not fit."""
    return hashlib.sha256(
        "".join(source_mark(root, name, precision, parts) for name in ("flow", "llm")).encode()
    ).hexdigest()[:12]


def tensor_names(root: Path, name: str) -> set[str]:
    """The keys of a published file, or none where it cannot be read: to tell generations apart,
    before anything is checked.
    """
    try:
        return set(
            torch.load(root / f"{name}.pt", map_location="cpu", weights_only=True, mmap=True)
        )
    except (
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        KeyError,
        EOFError,
        OSError,
        AttributeError,
        TypeError,
        IndexError,
        AssertionError,
    ):
        return set()


def source_of(converted: Path) -> str:
    """What a converted file was made from, or nothing when it tells nothing."""
    try:
        with safetensors.safe_open(converted, "pt") as f:
            return (f.metadata() or {}).get("source", "")
    except (safetensors.SafetensorError, OSError):
        return ""
