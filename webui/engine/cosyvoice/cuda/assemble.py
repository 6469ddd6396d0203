"""A loaded model with its three networks recorded: sized by the memory that is free, recorded once,
and then the same to its users as any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ....messages import message
from ..flow.dims import FRAMES_PER_ID
from ..llm.qwen2 import Qwen2LM
from ..llm.text_lm import RelativeLM
from ..memory_plan import MemoryPlan
from ..model import Model
from ..model_spec import Progress
from ..v1 import CosyVoice1
from ..v2 import CosyVoice2
from ..v3 import CosyVoice3
from .capture import Capture, CudaCapture, no_memory
from .flow import CapturedFlow, CapturedHops, FlowSizes, HopSizes
from .flow_memory import looking_back
from .lm import CapturedLM, LmSizes
from .vocoder import (
    CapturedCausalVocoder,
    CapturedVocoder,
    CapturedVocoderV1,
    CapturedWave,
    VocoderSizes,
)

# of the free memory, for what is kept; the rest is for the graphs' intermediate values
SHARE = 0.75
MOST_UNITS = 40000  # ids of all voices and streams: 26 minutes of sound
LEAST_UNITS = 1000  # a voice of 15 s, a stream of 25 s
# voices and streams, as far as what their convolutions remember fits this share
MOST_SLOTS, LEAST_SLOTS, SLOT_SHARE = 512, 64, 0.03
# of speech that a stream holds in the flow's pool: its segment as far as it has come, on average
HELD_S = 5.0
# streams in one call of flow or vocoder, where there is room to work on so many
TOGETHER, ROW_SHARE = (1, 2, 4, 8), (1 - SHARE) / 2
ROW_BYTES = 80 << 20  # what a call needs for each, counted for the largest
# of the first generation, whose flow keeps nothing: 30 s of prompt are 1500 positions, and a
# segment of 46 s as many more
V1_SLOTS, V1_LEAST_SLOTS, V1_LM_SHARE = (1, 2, 4, 8, 16, 32), 2, 0.4
V1_REACHES = (256, 512, 1024, 2048, 4096)
V1_TOGETHER, V1_ROW_SHARE = (1, 2, 4), 0.1
RECORDING = message("progress.recording_graphs")


@dataclass(frozen=True)
class Sizes:
    lm: LmSizes
    flow: FlowSizes | HopSizes
    vocoder: VocoderSizes

    @classmethod
    def for_memory(cls, model: CosyVoice2, free: int) -> Sizes:
        """As many units of the flow as fit beside the language model's slots.

        Raises NotReady when that is too little to speak.
        """
        lm, d, size = LmSizes(), model.flow.dims, model.device_config.dtype.itemsize
        of_lm = model.spec.lm.cache_bytes(lm.positions, size) * lm.slots[-1]
        channels, rows = looking_back(model.flow.decoder.estimator)
        of_slot = d.euler_steps * 2 * rows * sum(channels) * size
        slots = int(min(MOST_SLOTS, max(LEAST_SLOTS, free * SLOT_SHARE // of_slot)))
        of_unit = FRAMES_PER_ID * d.bytes_per_frame(model.device_config.store.itemsize)
        units = min(MOST_UNITS, (int(free * SHARE) - of_lm - slots * of_slot) // of_unit)
        if units < LEAST_UNITS:
            raise no_memory(f"{free / 2**30:.1f} GB free")
        together = batches(TOGETHER, free * ROW_SHARE)
        flow = FlowSizes(batches=together, units=units, slots=slots)
        return cls(lm, flow, VocoderSizes(batches=together))

    @classmethod
    def for_memory_v1(cls, model: CosyVoice1, free: int) -> Sizes:
        """Raises NotReady when there is too little to speak."""
        of_slot = model.spec.lm.cache_bytes(V1_REACHES[-1], model.device_config.dtype.itemsize)
        slots = tuple(count for count in V1_SLOTS if count * of_slot <= free * V1_LM_SHARE)
        if not slots or slots[-1] < V1_LEAST_SLOTS:
            raise no_memory(f"{free / 2**30:.1f} GB free")
        together = batches(V1_TOGETHER, free * V1_ROW_SHARE)
        return cls(
            LmSizes(slots=slots, reaches=V1_REACHES),
            HopSizes(batches=together),
            VocoderSizes(batches=together),
        )


def batches(counts: Sequence[int], room: float) -> tuple[int, ...]:
    return tuple(count for count in counts if count == 1 or count * ROW_BYTES <= room)


class Captured:
    """In front of a generation's own class, whose three networks are captured ones."""

    lm: CapturedLM
    flow: CapturedFlow | CapturedHops
    vocoder: CapturedVocoder

    @property
    def streams(self) -> int:
        return self.lm.sizes.slots[-1]

    @property
    def max_batch_size(self) -> int:
        return min(self.flow.sizes.batches[-1], self.vocoder.sizes.batches[-1])

    def new_wave_stream(self, seed: int) -> CapturedWave:
        return self.vocoder.stream(seed)

    def vocode_batch(self, batch: Sequence[tuple[CapturedWave, Tensor, bool]]) -> list[Tensor]:
        return self.vocoder.push_many(batch)


class CapturedPool(Captured):
    """With a flow that has a pool: half of it is for voices, half for streams."""

    flow: CapturedFlow

    @property
    def streams(self) -> int:
        sizes = self.flow.sizes
        of_units = int(sizes.units // 2 / (HELD_S * self.spec.ids_per_s))
        return max(1, min(super().streams, sizes.slots // 2, of_units))

    def voices_budget(self, plan: MemoryPlan) -> int:
        return self.flow.bytes_per_unit * self.flow.sizes.units // 2


class CapturedCosyVoice1(Captured, CosyVoice1): ...


class CapturedCosyVoice2(CapturedPool, CosyVoice2): ...


class CapturedCosyVoice3(CapturedPool, CosyVoice3): ...


KINDS = {  # the class, the flow's and the vocoder's of each generation
    CosyVoice1: (CapturedCosyVoice1, CapturedHops, CapturedVocoderV1),
    CosyVoice2: (CapturedCosyVoice2, CapturedFlow, CapturedVocoder),
    CosyVoice3: (CapturedCosyVoice3, CapturedFlow, CapturedCausalVocoder),
}


def captured(
    model: CosyVoice1 | CosyVoice2,
    on_progress: Progress = lambda share, en, zh: None,
    sizes: Sizes | None = None,
    capture: Callable[[], Capture] = CudaCapture,
) -> Model:
    """model: of torch networks on the device, not used afterwards. capture: makes one Capture for
    each of the two stages, since they replay at the same time. Raises NotReady `no_memory`.
    """
    if not isinstance(model.lm, (Qwen2LM, RelativeLM)):
        raise ValueError("only the torch language model can be captured")
    kind, flow_kind, vocoder_kind = KINDS[type(model)]
    if sizes is None:
        size = Sizes.for_memory_v1 if kind is CapturedCosyVoice1 else Sizes.for_memory
        sizes = size(model, torch.cuda.mem_get_info()[0])
    tokens, sound = capture(), capture()
    try:
        lm = CapturedLM(model.lm, model.spec.rule, sizes.lm, tokens)
        flow = flow_kind(model.flow, sizes.flow, sound, model.device_config.store)
        vocoder = vocoder_kind(model.vocoder, sizes.vocoder, sound)
    except torch.OutOfMemoryError as error:
        raise no_memory("the buffers") from error
    for part, first, last in ((lm, 0.82, 0.84), (flow, 0.84, 0.88), (vocoder, 0.88, 0.9)):
        part.record(
            lambda share, first=first, last=last: on_progress(
                first + share * (last - first), *RECORDING
            )
        )
    field_values = {f.name: getattr(model, f.name) for f in fields(model)}
    return kind(**{**field_values, "lm": lm, "flow": flow, "vocoder": vocoder})
