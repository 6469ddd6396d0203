"""Where the model runs and in which precision, and why. Reads the machine, not files of users."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ...errors import NotReady
from .checkpoint import DTYPES

log = logging.getLogger(__name__)
INT8 = "int8"
MOST_THREADS = 8  # of one stage: more on networks of this size cost more than they give


@dataclass(frozen=True)
class DeviceConfig:
    """lm: who computes the language model, "torch" or "int8" (ONNX Runtime). threads: of torch in
    one stage; lm_threads: of one int8 step.
    graphs: on a GPU, networks are recorded once and replayed.
    """

    device: str  # cpu, cuda, mps
    precision: str  # fp32, bf16, fp16: of everything that torch computes
    why: str
    lm: str = "torch"
    threads: int = 1
    lm_threads: int = 1
    graphs: bool = True

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.precision]

    @property
    def store(self) -> torch.dtype:
        """Kept K/V: half the memory at 1e-5 rms (cosyvoice2 specification, 6.6)."""
        return torch.float16 if self.precision == "fp32" else self.dtype

    @property
    def convolutions(self) -> torch.dtype:
        """Of the vocoder: bf16 where that is worth 40 % of its time, which is on a CPU; a GPU's are
        short of launches, not of arithmetic.
        """
        return torch.bfloat16 if (self.device, self.precision) == ("cpu", "bf16") else torch.float32

    @property
    def fingerprint(self) -> str:
        """Names what makes the samples other ones: who computes the language model, the precision
        of the rest, the kind of device. The number of threads changes the order of sums only.
        """
        lm = f"{INT8}-" if self.lm == INT8 else ""
        plain = "" if self.graphs or self.device != "cuda" else "-eager"
        return f"{lm}{self.precision}.{self.device}{plain}"

    def describe(self, title: str = "CosyVoice") -> str:
        lm = "language model in int8, the rest in " if self.lm == INT8 else ""
        threads = f"; {self.threads} thread(s) per stage" if self.device == "cpu" else ""
        return f"{title} on {self.device}, {lm}{self.precision}{threads}: {self.why}"


def choose(device: str = "auto", precision: str = "auto", threads: int = 0) -> DeviceConfig:
    """The best this machine has, or what was asked for. precision "int8": of the language model on
    a CPU, the rest as "auto" has it.
    threads: per stage on a CPU, 0 = chosen. Raises NotReady when that is not there.
    """
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device not in ("auto", *has) or precision not in ("auto", INT8, *DTYPES):
        raise NotReady("no_device.precision", device=device, precision=precision)
    picked = next(d for d in has if has[d]) if device == "auto" else device
    if not has[picked]:
        raise NotReady("no_device.not_here", picked=picked)
    if picked == "cpu":
        return processor(precision, threads, torch.cpu.get_capabilities(), cores())
    if precision == INT8:
        raise NotReady("no_device.int8", picked=picked)
    if precision != "auto":
        return DeviceConfig(picked, precision, "as asked")
    if picked == "cuda" and torch.cuda.is_bf16_supported():
        return DeviceConfig(picked, "bf16", "a GPU with bf16 units")
    if picked == "cuda":
        return DeviceConfig(picked, "fp16", "a GPU without bf16 units")
    return DeviceConfig(picked, "fp32", "exact on every processor; bf16 only when asked for")


def processor(precision: str, threads: int, can: Mapping[str, object], count: int) -> DeviceConfig:
    """Where a CPU that `can` this (names of torch.cpu.get_capabilities) and has `count` free cores
    computes what.
    """
    has_dots = bool(can.get("avx512_vnni") or can.get("avx_vnni") or can.get("dot"))
    has_bf16 = bool(can.get("avx512_bf16") or can.get("amx_bf16"))
    lm = INT8 if precision == INT8 or (precision == "auto" and has_dots) else "torch"
    rest = precision if precision in DTYPES else "bf16" if has_bf16 else "fp32"
    if precision == "auto" and lm == "torch":
        rest, why = "fp32", "a processor without int8 dot products"
    elif precision == "auto":
        why = (
            "a processor with int8 dot"
            f" products{' and bf16 units' if has_bf16 else ', without bf16 units'}"
        )
    else:
        why = "as asked"
    # The stages run side by side. A step of the language model waits for memory, which one core
    # saturates; the others are for the sound.
    chosen = max(1, count - 1 if lm == INT8 else count // 2)
    return DeviceConfig(
        "cpu", rest, f"{why}; {count} core(s)", lm, max(threads, 0) or min(chosen, MOST_THREADS), 1
    )


def cores() -> int:
    """Cores that this process may use, counted without hyper-threads."""
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(
        1, min(allowed, int(torch.cpu.get_capabilities().get("num_physical_cores") or allowed))
    )
