"""CosyVoice2 as a Family, and its loaded Model: the three networks, the tokenizer, the two
listening networks and the preset speakers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from ...messages import message
from ...types import CONVERT, MODES, SpeechRequest
from ..registry import GENERATIONS
from .checkpoint import COMPONENTS, Parts, component_state, marked
from .config import CONFIG, YAML, ModelSizesV2, read_spec
from .device import INT8, DeviceConfig, cores
from .directory_contents import check_files, prompt_encoder_of
from .flow import Blocks, CausalFlow, FlowDims, FlowModel, FlowState, VoiceState, step_many
from .flow.cfm_solver import CausalCFM
from .flow.dims import EULER_STEPS, FRAMES_PER_ID, LOOKAHEAD_IDS
from .frontend.preset_speakers import SPEAKERS, read_speakers
from .frontend.prompt_builder import PromptBuilder
from .frontend.prompt_cache import CachedPrompt
from .frontend.prompt_encoder import (
    SPEAKER_ONNX,
    TOKENIZER_ONNX,
    NoPromptEncoder,
    PromptEncoder,
    PromptEncoderConfig,
    PromptFeatures,
)
from .frontend.tokenizer import EVENT_TAGS, TextTokenizer
from .int8 import converted
from .llm.dims import LmDims
from .llm.interface import LanguageModel
from .llm.qwen2 import Qwen2LM
from .memory_plan import STREAM_S, VOICE_S, MemoryPlan
from .model_spec import EXPRESSIONS, Capabilities, MemoryEstimate, ModelSpec, Progress
from .scheduler.chunk_schedule import ChunkSchedule, LatencyProfile
from .vocoder import Vocoder, VocoderDims, VocoderState
from .vocoder.hift import HiftLayers

log = logging.getLogger(__name__)
ROWS = 4
FRAMES_PER_S = 50
LANGUAGES = ("zh", "yue", "en", "ja", "ko")
STYLES = (
    "sichuan",
    "yue",
    "dongbei",
    "shanghai",
    "tianjin",
    "henan",
    "shaanxi",
    "shandong",
    "minnan",
    "hunan",
    *EXPRESSIONS,
)
FACTS = Capabilities((*MODES, CONVERT), LANGUAGES, STYLES, EVENT_TAGS, text_in=True)


@dataclass(frozen=True)
class CosyVoice2:
    """Also the base of a generation whose networks are others in the same places: it overrides what
    stands before `load`.
    """

    spec: ModelSizesV2
    device_config: DeviceConfig
    tokenizer: TextTokenizer
    lm: LanguageModel
    flow: CausalFlow
    vocoder: HiftLayers
    prompt_encoder: PromptEncoder | NoPromptEncoder
    presets: dict[str, PromptFeatures]
    mark: str  # of the weights: voices made with other ones do not fit
    tokenizer_kind, prompt_encoder_config = TextTokenizer, PromptEncoderConfig()
    flow_kind, flow_dims, vocoder_kind = FlowModel, FlowDims, Vocoder

    @classmethod
    def default_spec(cls) -> ModelSpec:
        return SPEC

    @classmethod
    def load(
        cls,
        root: Path,
        device_config: DeviceConfig,
        on_progress: Progress = lambda share, en, zh: None,
        steps: int = EULER_STEPS,
        parts: Parts | None = None,
    ) -> Self:
        """steps: of the flow's solver. parts: its spec's when None.

        Raises NotReady naming the first file or field that does not fit.
        """
        on_progress(0.02, *message("progress.checking_files"))
        model_spec = replace(cls.default_spec(), components=parts or cls.default_spec().components)
        check_files(model_spec, root, device_config.precision)
        spec, parts = model_spec.read_spec(root, steps), model_spec.components
        tokenizer = cls.tokenizer_kind(root)
        mark = marked(root, device_config.precision, parts)
        on_progress(0.1, *message("progress.voice_networks"))
        ready = presets(root)
        prompt_encoder = prompt_encoder_of(
            model_spec,
            root,
            tokenizer,
            replace(cls.prompt_encoder_config, codes=spec.lm.speech_codes),
            ready,
        )
        on_progress(0.25, *message("progress.language_model"))
        lm = language_model(root, spec.lm, device_config, on_progress, parts)
        on_progress(0.6, *message("progress.acoustic_model"))
        flow = cls.flow_kind.of(
            cls.flow_dims.of(spec.flow),
            component_state(root, "flow", device_config.precision, parts),
            device_config.dtype,
            device_config.device,
        )
        on_progress(0.8, *message("progress.vocoder"))
        vocoder = cls.vocoder_kind.of(
            VocoderDims.of(spec.hift),
            component_state(root, "hift", "fp32", parts),
            torch.float32,
            device_config.device,
        )
        return cls(
            spec,
            device_config,
            tokenizer,
            lm,
            flow,
            vocoder.narrow(device_config.convolutions),
            prompt_encoder,
            ready,
            mark,
        )

    @property
    def model_spec(self) -> ModelSpec:
        return self.default_spec()

    @property
    def facts(self) -> Capabilities:
        """The starters speak in the mode for presets too."""
        return FACTS.for_model(True, self.prompt_encoder.can_hear)

    @property
    def guidance(self) -> CausalCFM:
        return self.flow.decoder

    def hops(self, first: int, pace: LatencyProfile) -> ChunkSchedule:
        return ChunkSchedule(
            first,
            self.flow.dims.chunk_size,
            pace.blocks,
            self.device_config.device != "cpu" or cores() > 1,
        )

    def unpack(self, data: bytes) -> PromptFeatures:
        return PromptFeatures.unpack(data)

    def voice(self, prompt: PromptFeatures, first_hop: int) -> VoiceState:
        """The prompt's last 3 ids are heard as what follows it: then it ends on a block, and a
        request's first hop computes frames of its own only.
        """
        n = min(len(prompt.speech_ids), prompt.mel.shape[1] // FRAMES_PER_ID)
        base = max(0, n - LOOKAHEAD_IDS)
        blocks = Blocks.behind(base, first_hop, self.flow.dims.chunk_size)
        ahead = prompt.speech_ids[base:n] if base else ()
        return self.new_voice_state(
            prompt.speech_ids[:base],
            prompt.mel[:, : FRAMES_PER_ID * base],
            prompt.vector,
            blocks,
            store=self.device_config.store,
            ahead=ahead,
        )

    def new_voice_state(self, *args, **named) -> VoiceState:
        """Arguments of VoiceState.create behind the model."""
        return VoiceState.create(self.flow, *args, **named)

    @classmethod
    def costs(cls, spec: ModelSizesV2, device_config: DeviceConfig) -> MemoryEstimate:
        """For the memory plan, before anything is loaded."""
        per_frame = cls.flow_dims.of(spec.flow).bytes_per_frame(device_config.store.itemsize)
        per_s = FRAMES_PER_S * per_frame
        return MemoryEstimate(
            int(VOICE_S * per_s), int(STREAM_S * per_s), converted.memory(spec.lm)
        )

    def new_wave_stream(self, seed: int) -> VocoderState:
        """A new stream of the vocoder."""
        return VocoderState(self.vocoder, seed)

    def prompt_builder(self, voice: CachedPrompt, request: SpeechRequest) -> PromptBuilder:
        return PromptBuilder(self, voice, request)

    def warm_prompt(self) -> PromptFeatures:
        return warm_prompt(self.spec.lm.speech_codes)

    @property
    def max_batch_size(self) -> int:
        """Requests whose sound is made in one call, at most; on a CPU fewer, by profile."""
        return ROWS

    streams = 0  # each takes the memory it needs

    def flow_batch(
        self, batch: Sequence[tuple[FlowState, Sequence[int], bool]]
    ) -> list[torch.Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""
        return step_many(batch)

    def vocode_batch(
        self, batch: Sequence[tuple[VocoderState, torch.Tensor, bool]]
    ) -> list[torch.Tensor]:
        """`push` of different streams."""
        return [wave.push(mel, final) for wave, mel, final in batch]

    def voices_budget(self, plan: MemoryPlan) -> int:
        """Bytes that kept voices may take."""
        return plan.voices_budget


def language_model(
    root: Path,
    dims: LmDims,
    device_config: DeviceConfig,
    on_progress: Progress,
    parts: Parts = COMPONENTS,
) -> LanguageModel:
    """Raises NotReady."""
    if device_config.lm == INT8 and not converted.fits(dims):
        log.warning(
            "heads of %d values are not for int8: torch computes the language model", dims.head_size
        )
    if device_config.lm != INT8 or not converted.fits(dims):
        return Qwen2LM.of(
            dims,
            component_state(root, "llm", device_config.precision, parts),
            device_config.dtype,
            device_config.device,
        )
    from .int8.runtime import Int8Lm  # only where it computes

    return Int8Lm(
        dims,
        converted.load(root, dims, converting(on_progress), parts),
        device_config.lm_threads,
        min(2, cores()),
    )


def converting(on_progress: Progress) -> Callable[[float], None]:
    """How far the language model's conversion is, as a part of the whole start."""
    return lambda done: on_progress(0.25 + 0.35 * done, *message("progress.converting_int8"))


def warm_prompt(codes: int, ids: int = 80, frames_per_id: int = FRAMES_PER_ID) -> PromptFeatures:
    """Random speech of so many ids, mel at the level of a voice, and a vector."""
    noise = torch.Generator().manual_seed(1)
    speech = tuple(torch.randint(0, codes, (ids,), generator=noise).tolist())
    return PromptFeatures(
        (),
        speech,
        torch.randn(1, frames_per_id * ids, 80, generator=noise) - 4,
        torch.randn(1, 192, generator=noise),
    )


def with_steps(spec: ModelSizesV2, steps: int) -> ModelSizesV2:
    return replace(spec, flow={**spec.flow, "euler_steps": steps})


def presets(root: Path, frames_per_id: int | None = FRAMES_PER_ID) -> dict[str, PromptFeatures]:
    """The ready speakers of a directory that has any. Raises NotReady."""
    if not (root / SPEAKERS).is_file():
        return {}
    return {
        name: PromptFeatures.of_speaker(entry, frames_per_id)
        for name, entry in read_speakers(root).items()
    }


SPEC = ModelSpec(
    engine=GENERATIONS[YAML].engine,
    title=GENERATIONS[YAML].title,
    code="4",
    prompt_code="3",
    yaml=YAML,
    components=COMPONENTS,
    required=(
        YAML,
        CONFIG,
        "CosyVoice-BlankEN/vocab.json",
        "CosyVoice-BlankEN/merges.txt",
        SPEAKER_ONNX,
        TOKENIZER_ONNX,
    ),
    clip_encoders=(SPEAKER_ONNX, TOKENIZER_ONNX),
    steps=(EULER_STEPS, 7, 5),
    first_hops=(25, 10),
    read_spec=read_spec,
    costs=CosyVoice2.costs,
    load=CosyVoice2.load,
)
