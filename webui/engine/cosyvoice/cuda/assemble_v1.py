"""A loaded first generation with its networks captured: sized by the memory that is free, recorded
once, and then the same to its users as any.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ..llm.text_lm import RelativeLM
from ..model_spec import Progress
from ..v1 import CosyVoice1
from .assemble import ROW_BYTES, VocoderStreams, record
from .capture import CudaCapture, no_memory
from .hop_flow import HopSizes, StaticHops
from .lm import LmSizes
from .relative_lm import StaticStackLm
from .vocoder import StaticVocoder, VocoderSizes
from .vocoder_work import VocoderWork

LM_SHARE = 0.4  # of the free memory, for the language model's slots
SLOTS = (1, 2, 4, 8, 16, 32)
LEAST_SLOTS = 2
REACHES = (
    256,
    512,
    1024,
    2048,
    4096,
)  # 30 s of prompt are 1500 positions, and a segment of 46 s as many more
ROW_SHARE = 0.1
TOGETHER = (1, 2, 4)


@dataclass(frozen=True)
class Sizes:
    lm: LmSizes
    flow: HopSizes
    vocoder: VocoderSizes

    @classmethod
    def for_memory(cls, model: CosyVoice1, free: int) -> Sizes:
        """Raises NotReady when there is too little to speak."""
        of_slot = model.spec.lm.cache_bytes(REACHES[-1], model.device_config.dtype.itemsize)
        slots = tuple(count for count in SLOTS if (count + 1) * of_slot <= free * LM_SHARE)
        if not slots or slots[-1] < LEAST_SLOTS:
            raise no_memory(f"{free / 2**30:.1f} GB free")
        together = tuple(
            count for count in TOGETHER if count == 1 or count * ROW_BYTES <= free * ROW_SHARE
        )
        return cls(
            LmSizes(slots=slots, reaches=REACHES),
            HopSizes(batches=together),
            VocoderSizes(batches=together),
        )


class SteppedWork(VocoderWork):
    """Each sample moves the phase by its own frame's frequency, from where chance put it."""

    lengths = (
        *range(1, 23),
        24,
        28,
        36,
        50,
        70,
        120,
        172,
        192,
        364,
    )  # those of hops of 100 and 200 ids among them

    def moves(self, f0: Tensor) -> Tensor:
        return (f0[..., None] * self.harmonics / self.vocoder.dims.rate_hz).double() * self.each

    def cycles(self, at: Tensor, moves: Tensor, is_start: Tensor) -> Tensor:
        within = (self.samples + 1) / self.each
        return (at[:, :-1, None] + within * moves[:, :, None]).flatten(1, 2)


@dataclass(frozen=True)
class CapturedCosyVoice1(VocoderStreams, CosyVoice1):
    """lm and flow are the static ones."""

    static_vocoder: StaticVocoder

    @property
    def max_batch_size(self) -> int:
        return self.flow.sizes.batches[-1]


def captured(
    model: CosyVoice1,
    on_progress: Progress = lambda share, en, zh: None,
    sizes: Sizes | None = None,
    capture=CudaCapture,
) -> CapturedCosyVoice1:
    """model: of torch networks on the device, not used afterwards. capture: makes one Capture for
    each of the two stages. Raises NotReady `no_memory`.
    """
    if not isinstance(model.lm, RelativeLM):
        raise ValueError("only the torch language model can be captured")
    sizes = sizes or Sizes.for_memory(model, torch.cuda.mem_get_info()[0])
    sound = capture()
    try:
        lm = StaticStackLm(model.lm, model.spec.rule, sizes.lm, capture())
        flow = StaticHops(model.flow, sizes.flow, sound)
        vocoder = StaticVocoder(model.vocoder, sizes.vocoder, capture=sound, work=SteppedWork)
    except torch.OutOfMemoryError as error:
        raise no_memory("the buffers") from error
    record(on_progress, lm, flow, vocoder)
    kept = {f.name: getattr(model, f.name) for f in fields(model)}
    return CapturedCosyVoice1(**{**kept, "lm": lm, "flow": flow}, static_vocoder=vocoder)
