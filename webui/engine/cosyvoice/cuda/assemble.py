"""A loaded model with its three networks captured: sized by the memory that is free, recorded once,
and then the same to its users as any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

import torch

from ..flow.dims import FRAMES_PER_ID
from ..llm.qwen2 import Qwen2LM
from ..memory_plan import MemoryPlan
from ..model_spec import Progress
from ..v2 import CosyVoice2
from .capture import CudaCapture, no_memory
from .flow import FlowSizes, StaticFlow, StaticVoice
from .flow_encoder import EncoderWork, Encoding
from .flow_work import GUIDANCE_ROWS, looking_back
from .lm import LmSizes, StaticLm
from .vocoder import StaticVocoder, StaticWave, VocoderSizes
from .vocoder_work import VocoderWork

# of the free memory, for what is kept; the rest is for the graphs' intermediate values
SHARE = 0.75
MOST_UNITS = 40000  # ids of all voices and streams: 26 minutes of sound
LEAST_UNITS = 1000  # a voice of 15 s, a stream of 25 s
MOST_SLOTS, LEAST_SLOTS, SLOT_SHARE = (
    512,
    64,
    0.03,
)  # voices and streams, as far as what their convolutions remember fits this share
# of speech that a stream holds in the flow's pool: its segment as far as it has come, on average
HELD_S = 5.0
TOGETHER = (
    1,
    2,
    4,
    8,
)  # streams in one call of flow or vocoder, where there is room to work on so many
ROW_BYTES = 80 << 20  # what a call needs for each, counted for the largest


@dataclass(frozen=True)
class Sizes:
    lm: LmSizes
    flow: FlowSizes
    vocoder: VocoderSizes

    @classmethod
    def for_memory(cls, model: CosyVoice2, free: int) -> Sizes:
        """As many units of the flow as fit beside the language model's slots.

        Raises NotReady when that is too little to speak.
        """
        lm, d = LmSizes(), model.flow.dims
        of_lm = model.spec.lm.cache_bytes(lm.positions, model.device_config.dtype.itemsize) * (
            lm.slots[-1] + 1
        )
        channels, rows = looking_back(model.flow.decoder.estimator)
        of_slot = (
            d.euler_steps
            * GUIDANCE_ROWS
            * rows
            * sum(channels)
            * model.device_config.dtype.itemsize
        )
        slots = int(min(MOST_SLOTS, max(LEAST_SLOTS, free * SLOT_SHARE // of_slot)))
        of_unit = FRAMES_PER_ID * d.bytes_per_frame(model.device_config.store.itemsize)
        units = min(MOST_UNITS, (int(free * SHARE) - of_lm - slots * of_slot) // of_unit)
        if units < LEAST_UNITS:
            raise no_memory(f"{free / 2**30:.1f} GB free")
        rows = free * (1 - SHARE) / 2 // ROW_BYTES
        together = tuple(b for b in TOGETHER if b <= max(1, rows))
        return cls(
            lm,
            FlowSizes(batches=together, units=units, slots=slots),
            VocoderSizes(batches=together),
        )


class CapturedLM(Protocol):
    def prewarm(self, on_progress: Callable[[float], None]) -> None: ...


class VocoderStreams:
    """In front of a generation's own class: waves come from the static vocoder, ids from the static
    language model.
    """

    lm: StaticLm
    static_vocoder: StaticVocoder

    @property
    def streams(self) -> int:
        """A request takes a slot of each."""
        return min(self.lm.sizes.slots[-1], self.static_vocoder.sizes.slots)

    def new_wave_stream(self, seed: int) -> StaticWave:
        return self.static_vocoder.begin(seed)

    def vocode_batch(self, asked) -> list[torch.Tensor]:
        return self.static_vocoder.push_many(asked)


class CapturedModelMixin(VocoderStreams):
    """Voices come from the static flow, too."""

    static_flow: StaticFlow

    def begun(self, *given, store: torch.dtype | None = None, **named) -> StaticVoice:
        """store: that of the pool, whatever is asked."""
        return StaticVoice(self.static_flow, *given, **named)

    @property
    def streams(self) -> int:
        """Half of the flow's pool, the other half is for voices."""
        sizes = self.static_flow.sizes
        of_units = int(sizes.units // 2 / (HELD_S * self.spec.ids_per_s))
        return max(1, min(super().streams, sizes.slots // 2, of_units))

    @property
    def max_batch_size(self) -> int:
        return min(self.static_flow.sizes.batches[-1], self.static_vocoder.sizes.batches[-1])

    def flow_batch(self, asked) -> list[torch.Tensor]:
        return [mel.clone() for mel in self.static_flow.step_many(asked)]

    def voices_budget(self, plan: MemoryPlan) -> int:
        """Half of the pool, the other half is for streams."""
        return self.static_flow.buffers.bytes_per_unit() * self.static_flow.sizes.units // 2


@dataclass(frozen=True)
class CapturedModel(CapturedModelMixin, CosyVoice2):
    """lm is the static one."""

    static_flow: StaticFlow
    static_vocoder: StaticVocoder


@dataclass(frozen=True)
class Works:
    """What of the works is a generation's own, and the class of its captured model."""

    model: type[CapturedModelMixin] = CapturedModel
    encoding: type[Encoding] = EncoderWork
    vocoder: type[VocoderWork] = VocoderWork


COSYVOICE2 = Works()
RECORDING = ("Recording the networks for the GPU", "正在为显卡录制网络")


def record(on_progress: Progress, lm: StaticLm, flow: CapturedLM, vocoder: StaticVocoder) -> None:
    """Raises NotReady `no_memory`."""
    for part, first, last in ((lm, 0.82, 0.84), (flow, 0.84, 0.88), (vocoder, 0.88, 0.9)):
        part.prewarm(
            lambda share, first=first, last=last: on_progress(
                first + share * (last - first), *RECORDING
            )
        )


def captured(
    model: CosyVoice2,
    on_progress: Progress = lambda share, en, zh: None,
    sizes: Sizes | None = None,
    capture=CudaCapture,
    works: Works = COSYVOICE2,
) -> CosyVoice2:
    """A `works.model`. model: of torch networks on the device, not used afterwards. capture: makes
    one Capture for each of the two stages, since they replay at the same time. Raises NotReady
    `no_memory`.
    """
    if not isinstance(model.lm, Qwen2LM):
        raise ValueError("only the torch language model can be captured")
    sizes = sizes or Sizes.for_memory(model, torch.cuda.mem_get_info()[0])
    tokens, sound = capture(), capture()
    try:
        lm = StaticLm(model.lm, model.spec.rule, sizes.lm, tokens)
        flow = StaticFlow(model.flow, sizes.flow, model.device_config.store, sound, works.encoding)
        vocoder = StaticVocoder(model.vocoder, sizes.vocoder, capture=sound, work=works.vocoder)
    except torch.OutOfMemoryError as error:
        raise no_memory("the buffers") from error
    record(on_progress, lm, flow, vocoder)
    kept = {f.name: getattr(model, f.name) for f in fields(model)}
    return works.model(**{**kept, "lm": lm}, static_flow=flow, static_vocoder=vocoder)
