"""Which memory a loaded model wants kept for itself: the plan's on a GPU, that of its mapped weight
files on a CPU.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ...errors import NotReady
from ..memory_pinning import MemoryLock
from .checkpoint import COMPONENTS, Parts
from .device import INT8, DeviceConfig
from .memory_plan import MemoryPlan, available


def mapped_files(
    root: Path, precision: str, lm: str = "torch", parts: Parts = COMPONENTS
) -> list[Path]:
    """The files whose pages the networks use as they are: converted ones, or published ones where
    nothing is converted on loading. The int8 language model is no such file: it is packed for the
    processor when it loads.
    """
    out = []
    for name, part in parts.items():
        if name == "llm" and lm == INT8:
            continue
        converted = root / part.converted(precision)
        if converted.is_file():
            out.append(converted)
        elif precision == "fp32" and not part.exact and (root / part.published(root)).is_file():
            out.append(root / part.published(root))
    return out


def keep_in_memory(
    lock: MemoryLock,
    plan: MemoryPlan,
    device_config: DeviceConfig,
    root: Path,
    parts: Parts = COMPONENTS,
) -> None:
    """For the process that loads the model. Raises NotReady with the reason and the remedy."""
    if device_config.device == "cuda":
        lock.pool_gpu(torch, plan.needed)
    else:
        pin_weights(lock, device_config, root, parts)


def pin_weights(
    lock: MemoryLock, device_config: DeviceConfig, root: Path, parts: Parts = COMPONENTS
) -> None:
    files = mapped_files(root, device_config.precision, device_config.lm, parts)
    if not files:
        raise NotReady("no_converted", precision=device_config.precision)
    lock.pin(files, available(device_config.device))
