"""Memory that a model needs where it shall run, from the sizes of its files, and what is free."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from ...errors import NotReady
from .checkpoint import DTYPES
from .device import INT8, DeviceConfig
from .model_spec import ModelSizes, ModelSpec

log = logging.getLogger(__name__)
VOICE_S = 30.0  # of a prompt: the longest clip that is used as a whole
USUAL_VOICE_S = 10.0  # without room for that one nothing is begun
STREAM_S = 20.0  # of speech, the longest a segment grows in practice
STREAM_TEXT_TOKENS = 250  # of the clip and of the segment
WORKSPACE = 0.15  # activations of one call, as a share of the weights


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

    def describe(self) -> str:
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
                raise NotReady("no_memory.model", title=title, needed_gb=gb[0], free_gb=gb[1])
        rest = int(self.voice * (1 - USUAL_VOICE_S / VOICE_S))
        if self.available and self.available < self.speaking + rest:
            log.warning(
                "a clip of %.0f s may find no memory here: it takes %.1f GB more than a usual one",
                VOICE_S,
                rest / 2**30,
            )


def plan(
    model_spec: ModelSpec, spec: ModelSizes, root: Path, device_config: DeviceConfig
) -> MemoryPlan:
    """From the sizes of the files that are there.

    While one of the three networks is cast or packed its published tensors lie beside the result;
    those that are used as they are, or were converted before, lie there once.
    """
    size, costs = DTYPES[device_config.precision].itemsize, model_spec.costs(spec, device_config)
    has_own = device_config.device == "cuda"
    weights = loading = 0
    for name, part in model_spec.components.items():  # in the order in which they are loaded
        is_int8 = name == "llm" and device_config.lm == INT8
        published = _bytes(root / part.published(root))
        resident_bytes = costs.int8_lm if is_int8 else published * (4 if part.exact else size) // 4
        form = root / part.converted(INT8 if is_int8 else device_config.precision)
        beside = 0 if resident_bytes == published or form.is_file() else published
        weights += resident_bytes
        loading = max(loading, (resident_bytes if has_own else weights) + beside)
    positions = int((VOICE_S + STREAM_S) * spec.ids_per_s) + STREAM_TEXT_TOKENS
    past = spec.lm.cache_bytes(positions, 4 if device_config.lm == INT8 else size)
    return MemoryPlan(
        weights,
        costs.voice,
        costs.stream + past,
        available(device_config.device),
        available("cpu") if has_own else 0,
        sum(_bytes(root / name) for name in model_spec.clip_encoders),
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
