"""What a loaded generation does: the interface between the scheduler and v1, v2 and v3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from torch import Tensor

from ...types import SpeechRequest
from .device import DeviceConfig
from .flow.interface import FlowRequest, FlowVoice
from .frontend.prompt_builder import PromptBuilder
from .frontend.prompt_cache import CachedPrompt
from .frontend.prompt_encoder import NoPromptEncoder, PromptEncoder, PromptFeatures
from .llm.interface import LanguageModel
from .memory_plan import MemoryPlan
from .model_spec import Capabilities, ModelSizes, ModelSpec
from .scheduler.chunk_schedule import ChunkSchedule, LatencyProfile
from .vocoder.interface import WaveStream


class TwoHalves(Protocol):
    """A network that can compute half of its work elsewhere meanwhile: a solver its second guidance
    row, a vocoder some of its blocks.
    """

    beside: Executor | None


class Model(Protocol):
    """A loaded generation, read-only. mark: of its weights; voices made with other ones do not
    fit.
    """

    model_spec: ModelSpec
    spec: ModelSizes
    device_config: DeviceConfig
    tokenizer: Any  # encode, typed, arriving, unknown
    lm: LanguageModel
    vocoder: TwoHalves
    prompt_encoder: PromptEncoder | NoPromptEncoder
    presets: Mapping[str, PromptFeatures]
    mark: str

    @property
    def facts(self) -> Capabilities:
        """Of this directory: its generation's, without what its files cannot do."""

    @property
    def guidance(self) -> TwoHalves | None:
        """The solver; None where it is captured with both rows."""

    @property
    def max_batch_size(self) -> int:
        """Requests whose sound is made in one call, at most."""

    @property
    def streams(self) -> int:
        """Requests that may be open at once; 0: any number, as memory allows."""

    def hops(self, first: int, pace: LatencyProfile) -> ChunkSchedule:
        """How a request's ids are cut. first: ids of the first hop."""

    def unpack(self, data: bytes) -> PromptFeatures:
        """Raises EngineFault when the bytes are no voice of this generation."""

    def voice(self, prompt: PromptFeatures, first_hop: int) -> FlowVoice:
        """Begun, nothing computed yet."""

    def new_wave_stream(self, seed: int) -> WaveStream: ...

    def flow_batch(self, batch: Sequence[tuple[FlowRequest, Sequence[int], bool]]) -> list[Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""

    def vocode_batch(self, batch: Sequence[tuple[WaveStream, Tensor, bool]]) -> list[Tensor]:
        """`push` of different streams."""

    def voices_budget(self, plan: MemoryPlan) -> int:
        """Bytes that kept voices may take."""

    def prompt_builder(self, voice: CachedPrompt, request: SpeechRequest) -> PromptBuilder: ...

    def warm_prompt(self) -> PromptFeatures:
        """Of random values, with every part that a prompt can have: what the warm-up speaks
        with.
        """
