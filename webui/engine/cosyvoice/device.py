"""Where the model runs and in which precision, and why; and whether the machine has the memory for it. Reads the machine, not files of users."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from ...errors import NotReady
from .flow import FlowDims
from .spec import ModelSpec
from .weights import DTYPES

log = logging.getLogger(__name__)
VOICE_FRAMES = 500  # a prompt of 10 s
STREAM_FRAMES = 1000  # 20 s of speech, the longest a segment grows in practice
STREAM_TOKENS = 1500
WORKSPACE = 0.15  # activations of one call, as a share of the weights


@dataclass(frozen=True)
class Place:
    device: str  # cpu, cuda, mps
    precision: str  # fp32, bf16, fp16
    why: str

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.precision]

    @property
    def store(self) -> torch.dtype:
        """Kept K/V: half the memory at 1e-5 rms (cosyvoice2 specification, 6.6)."""
        return torch.float16 if self.precision == "fp32" else self.dtype


def choose(device: str = "auto", precision: str = "auto") -> Place:
    """The best this machine has, or what was asked for. Raises NotReady when that is not there."""
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device not in ("auto", *has) or precision not in ("auto", *DTYPES):
        raise NotReady(f"There is no device “{device}” with precision “{precision}”.", f"没有设备「{device}」或精度「{precision}」。", code="no_device")
    picked = next(d for d in has if has[d]) if device == "auto" else device
    if not has[picked]:
        raise NotReady(f"This machine has no {picked}. Use device cpu or auto.", f"本机没有 {picked}，请用 cpu 或 auto。", code="no_device")
    if precision != "auto":
        return Place(picked, precision, "as asked")
    if picked == "cuda" and torch.cuda.is_bf16_supported():
        return Place(picked, "bf16", "a GPU with bf16 units")
    if picked == "cuda":
        return Place(picked, "fp16", "a GPU without bf16 units")
    return Place(picked, "fp32", "exact on every processor; bf16 only when asked for")


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: weights, one voice of 10 s, one stream of 20 s; `available` on the device now (0 = unknown)."""

    weights: int
    voice: int
    stream: int
    available: int

    @property
    def needed(self) -> int:
        """The least that speaks: weights, one voice, one stream, room to work."""
        return int(self.weights * (1 + WORKSPACE)) + self.voice + self.stream

    @property
    def voices_budget(self) -> int:
        """What kept voices may take: half of what one stream leaves over, at least one voice."""
        return max(self.voice, (self.available - self.needed) // 2)

    def words(self) -> str:
        mb = {k: f"{getattr(self, k) / 2**20:.0f} MiB" for k in ("weights", "voice", "stream", "needed", "available")}
        return f"weights {mb['weights']}, a 10 s voice {mb['voice']}, a 20 s stream {mb['stream']}; needed {mb['needed']}, available {mb['available']}"

    def check(self) -> None:
        """Raises NotReady: a clear refusal now instead of an out-of-memory kill later."""
        if self.available and self.available < self.needed:
            gb = self.needed / 2**30, self.available / 2**30
            raise NotReady(f"CosyVoice2 needs {gb[0]:.1f} GB of memory here, {gb[1]:.1f} GB are free. Close other programs, or use the built-in voice.",
                           f"CosyVoice2 在这里需要 {gb[0]:.1f} GB 内存，现在只有 {gb[1]:.1f} GB 可用。请关闭其他程序，或使用内置音色。", code="no_memory")


def plan(spec: ModelSpec, root: Path, place: Place) -> MemoryPlan:
    size = DTYPES[place.precision].itemsize
    weights = sum((root / f"{n}.pt").stat().st_size * (4 if n == "hift" else size) // 4 for n in ("llm", "flow", "hift") if (root / f"{n}.pt").is_file())
    per_frame = FlowDims.of(spec.flow).bytes_per_frame(place.store.itemsize)
    return MemoryPlan(weights, VOICE_FRAMES * per_frame, STREAM_FRAMES * per_frame + spec.lm.cache_bytes(STREAM_TOKENS, size), available(place.device))


def available(device: str) -> int:
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 0)
