"""Where the model runs and in which precision, and why; and whether the machine has the memory for
it. Reads the machine, not files of users.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ...errors import NotReady
from .weights import DTYPES

if TYPE_CHECKING:
    from .family import Family, Spec

log = logging.getLogger(__name__)
VOICE_S = 30.0  # of a prompt: the longest clip that is used as a whole
USUAL_VOICE_S = 10.0  # without room for that one nothing is begun
STREAM_S = 20.0  # of speech, the longest a segment grows in practice
STREAM_TEXT_TOKENS = 250  # of the clip and of the segment
WORKSPACE = 0.15  # activations of one call, as a share of the weights


HOST_SHARE = 4
INT8 = "int8"
MOST_THREADS = 8  # of one stage: more on networks of this size cost more than they give


@dataclass(frozen=True)
class Place:
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
    def mark(self) -> str:
        """Names what makes the samples other ones: who computes the language model, the precision
        of the rest, the kind of device. The number of threads changes the order of sums only.
        """
        lm = f"{INT8}-" if self.lm == INT8 else ""
        plain = "" if self.graphs or self.device != "cuda" else "-eager"
        return f"{lm}{self.precision}.{self.device}{plain}"

    def words(self, title: str = "CosyVoice") -> str:
        lm = "language model in int8, the rest in " if self.lm == INT8 else ""
        threads = f"; {self.threads} thread(s) per stage" if self.device == "cpu" else ""
        return f"{title} on {self.device}, {lm}{self.precision}{threads}: {self.why}"


def choose(device: str = "auto", precision: str = "auto", threads: int = 0) -> Place:
    """The best this machine has, or what was asked for. precision "int8": of the language model on
    a CPU, the rest as "auto" has it.
    threads: per stage on a CPU, 0 = chosen. Raises NotReady when that is not there.
    """
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device not in ("auto", *has) or precision not in ("auto", INT8, *DTYPES):
        raise NotReady(
            f"There is no device “{device}” with precision “{precision}”.",
            f"没有设备「{device}」或精度「{precision}」。",
            code="no_device",
        )
    picked = next(d for d in has if has[d]) if device == "auto" else device
    if not has[picked]:
        raise NotReady(
            f"This machine has no {picked}. Use device cpu or auto.",
            f"本机没有 {picked}，请用 cpu 或 auto。",
            code="no_device",
        )
    if picked == "cpu":
        return processor(precision, threads, torch.cpu.get_capabilities(), cores())
    if precision == INT8:
        raise NotReady(
            f"int8 is for the CPU; {picked} has fp32, bf16 and fp16.",
            f"int8 只用于 CPU；{picked} 可用 fp32、bf16、fp16。",
            code="no_device",
        )
    if precision != "auto":
        return Place(picked, precision, "as asked")
    if picked == "cuda" and torch.cuda.is_bf16_supported():
        return Place(picked, "bf16", "a GPU with bf16 units")
    if picked == "cuda":
        return Place(picked, "fp16", "a GPU without bf16 units")
    return Place(picked, "fp32", "exact on every processor; bf16 only when asked for")


def processor(precision: str, threads: int, can: Mapping[str, object], count: int) -> Place:
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
    return Place(
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


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: weights, one voice of VOICE_S, one stream of STREAM_S; `available` on the device now
    (0 = unknown); `host`: free memory of the host,
    for a device that has its own; `listening`: the networks that hear a clip, always on the host;
    `loading`: the most that weights take while they load.
    """

    weights: int
    voice: int
    stream: int
    available: int
    host: int = 0
    listening: int = 0
    loading: int = 0

    @property
    def speaking(self) -> int:
        """The least that speaks: weights, a usual voice, one stream, room to work; and the
        listening networks where the memory is one.
        """
        usual = int(self.voice * USUAL_VOICE_S / VOICE_S)
        own = int(self.weights * (1 + WORKSPACE)) + usual + self.stream
        return own if self.host else own + self.listening

    @property
    def needed(self) -> int:
        """On the device, at the worst moment of the start and afterwards."""
        return self.speaking if self.host else max(self.speaking, self.loading + self.listening)

    @property
    def host_needed(self) -> int:
        """On the host of a device with its own memory."""
        return self.loading + self.listening if self.host else 0

    @property
    def voices_budget(self) -> int:
        """What kept voices may take: half of what one stream leaves over, at least one voice."""
        return max(self.voice, (self.available - self.speaking) // 2)

    @property
    def host_budget(self) -> int:
        """What voices may take that wait there: it cannot be swapped out, so not much of it."""
        return self.host // HOST_SHARE

    def words(self) -> str:
        names = ("weights", "voice", "stream", "listening", "loading", "needed", "available")
        mb = {k: f"{getattr(self, k) / 2**20:.0f} MiB" for k in names}
        return (
            f"weights {mb['weights']}, a {VOICE_S:.0f} s voice {mb['voice']}, a {STREAM_S:.0f} s"
            f" stream {mb['stream']}, listening networks {mb['listening']}, weights while loading"
            f" {mb['loading']}; needed {mb['needed']}, available {mb['available']}"
        )

    def check(self, title: str = "CosyVoice") -> None:
        """Raises NotReady: a clear refusal now instead of an out-of-memory kill later.

        Where only the longest clip has no room, the log says so.
        """
        for needed, free in ((self.needed, self.available), (self.host_needed, self.host)):
            if free and free < needed:
                gb = needed / 2**30, free / 2**30
                raise NotReady(
                    f"{title} needs {gb[0]:.1f} GB of memory here, {gb[1]:.1f} GB are free. Close"
                    " other programs, or use the built-in voice.",
                    f"{title} 在这里需要 {gb[0]:.1f} GB 内存，现在只有 {gb[1]:.1f} GB 可用。"
                    "请关闭其他程序，或使用内置音色。",
                    code="no_memory",
                )
        rest = int(self.voice * (1 - USUAL_VOICE_S / VOICE_S))
        if self.available and self.available < self.speaking + rest:
            log.warning(
                "a clip of %.0f s may find no memory here: it takes %.1f GB more than a usual one",
                VOICE_S,
                rest / 2**30,
            )


def plan(family: Family, spec: Spec, root: Path, place: Place) -> MemoryPlan:
    """From the sizes of the files that are there.

    While one of the three networks is cast or packed its published tensors lie beside the result;
    those that are used as they are, or were converted before, lie there once.
    """
    size, costs = DTYPES[place.precision].itemsize, family.costs(spec, place)
    has_own = place.device == "cuda"
    weights = loading = 0
    for name, part in family.components.items():  # in the order in which they are loaded
        is_int8 = name == "llm" and place.lm == INT8
        published = _bytes(root / part.published(root))
        kept = costs.int8_lm if is_int8 else published * (4 if part.exact else size) // 4
        form = root / part.converted(INT8 if is_int8 else place.precision)
        beside = 0 if kept == published or form.is_file() else published
        weights += kept
        loading = max(loading, (kept if has_own else weights) + beside)
    positions = int((VOICE_S + STREAM_S) * spec.ids_per_s) + STREAM_TEXT_TOKENS
    past = spec.lm.cache_bytes(positions, 4 if place.lm == INT8 else size)
    return MemoryPlan(
        weights,
        costs.voice,
        costs.stream + past,
        available(place.device),
        available("cpu") if has_own else 0,
        sum(_bytes(root / name) for name in family.listening),
        loading,
    )


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def available(device: str) -> int:
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 0
    )
