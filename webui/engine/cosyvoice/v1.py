"""The first generation as a Family, and its loaded Model: three networks, the tokenizer, the two
listening networks and the preset speakers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...errors import NotReady
from ...messages import message
from ...types import CONVERT, SpeechRequest
from ..registry import GENERATIONS
from . import file_checks
from .checkpoint import COMPONENTS, DTYPES, component_state, marked
from .config_v1 import LISTENER_ONNX, NEEDS_SPEAKERS, TITLE, YAML, ModelSizesV1, read_spec
from .device import INT8, DeviceConfig, cores
from .dims_v1 import FRAME_SAMPLES, HOP_IDS, OVERLAP_IDS, RATE_HZ, LmDimsV1
from .directory_contents import NEEDED, check_files, prompt_encoder_of
from .flow.cfm_solver import CFMSolver
from .flow.dims import EULER_STEPS, MEL_BANDS
from .flow.hop_dims import HopDims
from .flow.hop_flow import HopFlow
from .flow.hop_stream import HopState, HopVoice, step_many
from .frontend.audio_features import log_mel
from .frontend.preset_speakers import SPEAKERS
from .frontend.prompt_builder_v1 import PromptBuilderV1
from .frontend.prompt_cache import CachedPrompt
from .frontend.prompt_encoder import (
    SPEAKER_ONNX,
    NoPromptEncoder,
    PromptEncoder,
    PromptEncoderConfig,
    PromptFeatures,
)
from .frontend.whisper_tokenizer import (
    END_OF_PROMPT,
    EVENT_TAGS,
    LANGUAGES,
    MARK_END,
    WhisperTokenizer,
)
from .int8 import converted
from .llm.interface import LanguageModel
from .llm.text_lm import RelativeLM
from .memory_plan import VOICE_S, MemoryPlan
from .model_faults import download_advice, model_fault
from .model_spec import EXPRESSIONS, Capabilities, MemoryEstimate, ModelSpec, Progress
from .scheduler.chunk_schedule import ChunkSchedule, LatencyProfile
from .v2 import converting, presets, warm_prompt
from .vocoder import VocoderState
from .vocoder.hift_v1 import VocoderV1, dims_of

log = logging.getLogger(__name__)
ENGINE = GENERATIONS[YAML].engine
ROWS = 4
ENDS = (END_OF_PROMPT, MARK_END)  # of a description
MOST_BLOCKS = 2  # of a hop; longer ones were never published
PROMPT_TEXT_IDS = int(6 * VOICE_S)  # of its transcript
HEARING = PromptEncoderConfig(
    ENGINE,
    LISTENER_ONNX,
    ids_per_s=50,
    mel_hz=RATE_HZ,
    mel=partial(log_mel, rate_hz=RATE_HZ, window=1024, hop=FRAME_SAMPLES),
    frames_per_id=None,
)
CLONING = (
    "zero_shot",
    "cross_lingual",
)  # all releases can, though -SFT and -Instruct were not made for it
BASE = Capabilities((*CLONING, "preset", CONVERT), LANGUAGES)
FACTS = {
    "base": BASE,
    "sft": Capabilities(("preset", *CLONING, CONVERT), LANGUAGES),
    "instruct": Capabilities(
        ("preset", "instruct", *CLONING, CONVERT),
        LANGUAGES,
        EXPRESSIONS,
        EVENT_TAGS,
        preset_modes=("instruct",),
    ),  # the others would read a description aloud
}


@dataclass(frozen=True)
class CosyVoice1:
    spec: ModelSizesV1
    device_config: DeviceConfig
    tokenizer: WhisperTokenizer
    lm: LanguageModel
    flow: HopFlow
    vocoder: VocoderV1
    prompt_encoder: PromptEncoder | NoPromptEncoder
    presets: dict[str, PromptFeatures]
    mark: str

    @classmethod
    def load(
        cls,
        root: Path,
        device_config: DeviceConfig,
        on_progress: Progress = lambda share, en, zh: None,
        steps: int = EULER_STEPS,
        end_of_prompt: str = END_OF_PROMPT,
    ) -> CosyVoice1:
        """steps: of the flow's solver. end_of_prompt: of ENDS.

        Raises NotReady naming the first file or field that does not fit.
        """
        on_progress(0.02, *message("progress.checking_files"))
        check_files(SPEC, root, device_config.precision)
        spec = read_spec(root, steps)
        tokenizer = WhisperTokenizer(root, FACTS[spec.release].tags, end_of_prompt)
        check_rows(spec, tokenizer)
        on_progress(0.1, *message("progress.voice_networks"))
        ready = presets(root, None)
        if spec.release in NEEDS_SPEAKERS and not ready:
            raise no_speakers(root)
        prompt_encoder = prompt_encoder_of(SPEC, root, tokenizer, HEARING, ready)
        on_progress(0.25, *message("progress.language_model"))
        lm = language_model(root, spec.lm, device_config, on_progress)
        on_progress(0.6, *message("progress.acoustic_model"))
        exact = (
            "fp32" if device_config.precision == "fp16" else device_config.precision
        )  # in fp16 the flow was heard to give silence
        flow = HopFlow.of(
            HopDims.of(spec.flow),
            component_state(root, "flow", exact),
            DTYPES[exact],
            device_config.device,
        )
        on_progress(0.8, *message("progress.vocoder"))
        vocoder = VocoderV1.of(
            dims_of(spec.hift), component_state(root, "hift"), torch.float32, device_config.device
        ).narrow(device_config.convolutions)
        return cls(
            spec,
            device_config,
            tokenizer,
            lm,
            flow,
            vocoder,
            prompt_encoder,
            ready,
            marked(root, device_config.precision),
        )

    @property
    def model_spec(self) -> ModelSpec:
        return SPEC

    @property
    def facts(self) -> Capabilities:
        return FACTS[self.spec.release].for_model(bool(self.presets), self.prompt_encoder.can_hear)

    @property
    def guidance(self) -> CFMSolver:
        return self.flow.decoder

    @property
    def max_batch_size(self) -> int:
        """On a CPU nobody shares a call: with a prompt in each it is long enough as it is."""
        return 1 if self.device_config.device == "cpu" else ROWS

    streams = 0  # each takes the memory it needs

    def hops(self, first: int, pace: LatencyProfile) -> ChunkSchedule:
        """A hop is one call of the flow, behind the prompt again: two blocks in one cost less than
        one after the other, and have no seam.
        """
        return ChunkSchedule(
            first,
            HOP_IDS,
            tuple(min(count, MOST_BLOCKS) for count in pace.blocks),
            True,
            OVERLAP_IDS,
        )

    def unpack(self, data: bytes) -> PromptFeatures:
        return PromptFeatures.unpack(data, None)

    def voice(self, prompt: PromptFeatures, first_hop: int) -> HopVoice:
        return HopVoice.of(self.flow, prompt.speech_ids, prompt.mel, prompt.vector)

    def new_wave_stream(self, seed: int) -> VocoderState:
        return VocoderState(self.vocoder, seed)

    def prompt_builder(self, voice: CachedPrompt, request: SpeechRequest) -> PromptBuilderV1:
        return PromptBuilderV1(self, voice, request)

    def warm_prompt(self) -> PromptFeatures:
        return warm_prompt(self.spec.lm.speech_codes)

    def flow_batch(self, batch: Sequence[tuple[HopState, Sequence[int], bool]]) -> list[Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""
        return step_many(batch)

    def vocode_batch(self, batch: Sequence[tuple[VocoderState, Tensor, bool]]) -> list[Tensor]:
        """`push` of different streams."""
        return [wave.push(mel, final) for wave, mel, final in batch]

    def voices_budget(self, plan: MemoryPlan) -> int:
        """Bytes that kept voices may take."""
        return plan.voices_budget


def language_model(
    root: Path, dims: LmDimsV1, device_config: DeviceConfig, on_progress: Progress
) -> LanguageModel:
    """Raises NotReady."""
    if device_config.lm == INT8 and converted.fits(dims.body):
        from .int8.runtime import Int8TextLm  # only where it computes

        return Int8TextLm.create(
            dims,
            converted.load(root, dims, converting(on_progress), form=converted.RELATIVE),
            device_config.dtype,
            device_config.lm_threads,
            min(2, cores()),
        )
    if device_config.lm == INT8:
        log.warning(
            "heads of %d values are not for int8: torch computes the language model",
            dims.body.head_size,
        )
    return RelativeLM.of(
        dims,
        component_state(root, "llm", device_config.precision),
        device_config.dtype,
        device_config.device,
    )


def no_speakers(root: Path) -> NotReady:
    """The fault of a -SFT or -Instruct directory that has no ready speaker.

    Raises NotReady where the file is missing or unreadable.
    """
    file_checks.head(root, SPEAKERS, NEEDED)
    return model_fault(SPEAKERS, message("file.ready_speaker"), message("file.none"))


def check_rows(spec: ModelSizesV1, tokenizer: WhisperTokenizer) -> None:
    """Raises NotReady when text ids would have no embedding."""
    if spec.lm.text_rows < tokenizer.size:
        field = f"llm.text_token_size = {tokenizer.size}"
        raise model_fault(
            YAML, (field, field), (str(spec.lm.text_rows),) * 2, download_advice(TITLE)
        )


def costs(spec: ModelSizesV1, device_config: DeviceConfig) -> MemoryEstimate:
    """A voice is its mel and a past of its words; a stream the text encoder's past beside that of
    the language model.
    """
    size = DTYPES[device_config.precision].itemsize
    words = spec.lm.encoder.cache_bytes(PROMPT_TEXT_IDS, size)
    mel = int(VOICE_S * RATE_HZ / FRAME_SAMPLES) * MEL_BANDS * size
    return MemoryEstimate(
        mel + words + spec.lm.cache_bytes(PROMPT_TEXT_IDS, size),
        2 * words + mel,
        converted.relative_memory(spec.lm, size),
    )


SPEC = ModelSpec(
    engine=GENERATIONS[YAML].engine,
    title=GENERATIONS[YAML].title,
    code="3",
    prompt_code="2",
    yaml=YAML,
    components=COMPONENTS,
    required=(YAML, SPEAKER_ONNX, LISTENER_ONNX),
    clip_encoders=(SPEAKER_ONNX, LISTENER_ONNX),
    steps=(EULER_STEPS, 7, 5),
    first_hops=(HOP_IDS, 50),
    ends_of_prompt=ENDS,
    read_spec=read_spec,
    costs=costs,
    load=CosyVoice1.load,
)
