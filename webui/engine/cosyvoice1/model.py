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
from ...types import CONVERT, SpeechRequest
from ..cosyvoice import files
from ..cosyvoice.contents import NEEDED, prompt_maker
from ..cosyvoice.device import INT8, VOICE_S, MemoryPlan, Place
from ..cosyvoice.family import EXPRESSIONS, Costs, Facts, Family, Progress, check_files
from ..cosyvoice.faults import model_fault, remedy
from ..cosyvoice.features import log_mel
from ..cosyvoice.flow.dims import EULER_STEPS, MEL_BANDS
from ..cosyvoice.flow.solver import Solver
from ..cosyvoice.lm_seam import LanguageModel
from ..cosyvoice.model import converting, presets, warm_prompt
from ..cosyvoice.pace import Hops, Profile
from ..cosyvoice.prompt import SPEAKER_ONNX, Hearing, NoMaker, PromptMaker, VoicePrompt
from ..cosyvoice.speakers import SPEAKERS
from ..cosyvoice.vocoder import VocoderState
from ..cosyvoice.voices import LiveVoice
from ..cosyvoice.weights import COMPONENTS, DTYPES, component_state, marked
from .dims import FRAME_SAMPLES, HOP_IDS, OVERLAP_IDS, RATE_HZ, LmDims
from .flow import HopDims, HopFlow, HopState, HopVoice, step_many
from .int8 import runtime
from .lm import StackLm
from .script import FirstScript
from .spec import LISTENER_ONNX, NEEDS_SPEAKERS, TITLE, YAML, FirstSpec, read_spec
from .tokenizer import END_OF_PROMPT, EVENT_TAGS, LANGUAGES, MARK_END, WhisperTokenizer
from .vocoder import FirstVocoder, dims_of

log = logging.getLogger(__name__)
ENGINE = "cosyvoice1"
ROWS = 4
ENDS = (END_OF_PROMPT, MARK_END)  # of a description
MOST_BLOCKS = 2  # of a hop; longer ones were never published
PROMPT_TEXT_IDS = int(6 * VOICE_S)  # of its transcript
HEARING = Hearing(
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
BASE = Facts((*CLONING, "preset", CONVERT), LANGUAGES)
FACTS = {
    "base": BASE,
    "sft": Facts(("preset", *CLONING, CONVERT), LANGUAGES),
    "instruct": Facts(
        ("preset", "instruct", *CLONING, CONVERT),
        LANGUAGES,
        EXPRESSIONS,
        EVENT_TAGS,
        preset_modes=("instruct",),
    ),  # the others would read a description aloud
}


@dataclass(frozen=True)
class CosyVoice1:
    spec: FirstSpec
    place: Place
    tokenizer: WhisperTokenizer
    lm: LanguageModel
    flow: HopFlow
    vocoder: FirstVocoder
    maker: PromptMaker | NoMaker
    presets: dict[str, VoicePrompt]
    mark: str

    @classmethod
    def load(
        cls,
        root: Path,
        place: Place,
        told: Progress = lambda share, en, zh: None,
        steps: int = EULER_STEPS,
        end_of_prompt: str = END_OF_PROMPT,
    ) -> CosyVoice1:
        """steps: of the flow's solver. end_of_prompt: of ENDS.

        Raises NotReady naming the first file or field that does not fit.
        """
        told(0.02, "Checking model files", "正在校验模型文件")
        check_files(FAMILY, root, place.precision)
        spec = read_spec(root, steps)
        tokenizer = WhisperTokenizer(root, FACTS[spec.release].tags, end_of_prompt)
        check_rows(spec, tokenizer)
        told(0.1, "Loading the voice networks", "正在载入声音网络")
        ready = presets(root, None)
        if spec.release in NEEDS_SPEAKERS and not ready:
            raise no_speakers(root)
        maker = prompt_maker(FAMILY, root, tokenizer, HEARING, ready)
        told(0.25, "Loading the language model", "正在载入语言模型")
        lm = language_model(root, spec.lm, place, told)
        told(0.6, "Loading the acoustic model", "正在载入声学模型")
        exact = (
            "fp32" if place.precision == "fp16" else place.precision
        )  # in fp16 the flow was heard to give silence
        flow = HopFlow.of(
            HopDims.of(spec.flow), component_state(root, "flow", exact), DTYPES[exact], place.device
        )
        told(0.8, "Loading the vocoder", "正在载入声码器")
        vocoder = FirstVocoder.of(
            dims_of(spec.hift), component_state(root, "hift"), torch.float32, place.device
        ).narrow(place.convolutions)
        return cls(
            spec, place, tokenizer, lm, flow, vocoder, maker, ready, marked(root, place.precision)
        ).placed(told)

    def placed(self, told: Progress) -> CosyVoice1:
        """As it computes where it is."""
        if self.place.device != "cuda" or not self.place.graphs:
            return self
        from .graphs.assemble import captured  # which knows this class

        return captured(self, told)

    @property
    def family(self) -> Family:
        return FAMILY

    @property
    def facts(self) -> Facts:
        return FACTS[self.spec.release].here(bool(self.presets), self.maker.can_hear)

    @property
    def guidance(self) -> Solver:
        return self.flow.decoder

    @property
    def together(self) -> int:
        """On a CPU nobody shares a call: with a prompt in each it is long enough as it is."""
        return 1 if self.place.device == "cpu" else ROWS

    streams = 0  # each takes the memory it needs

    def hops(self, first: int, pace: Profile) -> Hops:
        """A hop is one call of the flow, behind the prompt again: two blocks in one cost less than
        one after the other, and have no seam.
        """
        return Hops(
            first,
            HOP_IDS,
            tuple(min(count, MOST_BLOCKS) for count in pace.blocks),
            True,
            OVERLAP_IDS,
        )

    def unpack(self, data: bytes) -> VoicePrompt:
        return VoicePrompt.unpack(data, None)

    def voice(self, prompt: VoicePrompt, first_hop: int) -> HopVoice:
        return HopVoice.of(self.flow, prompt.speech_ids, prompt.mel, prompt.vector)

    def wave(self, seed: int) -> VocoderState:
        return VocoderState(self.vocoder, seed)

    def script(self, voice: LiveVoice, request: SpeechRequest) -> FirstScript:
        return FirstScript(self, voice, request)

    def warm_prompt(self) -> VoicePrompt:
        return warm_prompt(self.spec.lm.speech_codes)

    def flow_many(self, asked: Sequence[tuple[HopState, Sequence[int], bool]]) -> list[Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""
        return step_many(asked)

    def wave_many(self, asked: Sequence[tuple[VocoderState, Tensor, bool]]) -> list[Tensor]:
        """`push` of different streams."""
        return [wave.push(mel, final) for wave, mel, final in asked]

    def voices_budget(self, plan: MemoryPlan) -> tuple[int, int]:
        """Where voices are used is where they wait."""
        return plan.voices_budget, 0


def language_model(root: Path, dims: LmDims, place: Place, told: Progress) -> LanguageModel:
    """Raises NotReady."""
    if place.lm == INT8 and runtime.fits(dims):
        return runtime.Int8TextLm.load(root, dims, place, converting(told))
    if place.lm == INT8:
        log.warning(
            "heads of %d values are not for int8: torch computes the language model",
            dims.body.head_size,
        )
    return StackLm.of(
        dims, component_state(root, "llm", place.precision), place.dtype, place.device
    )


def no_speakers(root: Path) -> NotReady:
    """The fault of a -SFT or -Instruct directory that has no ready speaker.

    Raises NotReady where the file is missing or unreadable.
    """
    files.head(root, SPEAKERS, NEEDED)
    return model_fault(
        SPEAKERS, ("at least one ready speaker", "至少一个预训练音色"), ("none", "没有")
    )


def check_rows(spec: FirstSpec, tokenizer: WhisperTokenizer) -> None:
    """Raises NotReady when text ids would have no embedding."""
    if spec.lm.text_rows < tokenizer.size:
        field = f"llm.text_token_size = {tokenizer.size}"
        raise model_fault(YAML, (field, field), (str(spec.lm.text_rows),) * 2, remedy(TITLE))


def costs(spec: FirstSpec, place: Place) -> Costs:
    """A voice is its mel and a past of its words; a stream the text encoder's past beside that of
    the language model.
    """
    size = DTYPES[place.precision].itemsize
    words = spec.lm.encoder.cache_bytes(PROMPT_TEXT_IDS, size)
    mel = int(VOICE_S * RATE_HZ / FRAME_SAMPLES) * MEL_BANDS * size
    return Costs(
        mel + words + spec.lm.cache_bytes(PROMPT_TEXT_IDS, size),
        2 * words + mel,
        runtime.memory(spec.lm, size),
    )


FAMILY = Family(
    engine=ENGINE,
    title=TITLE,
    code="3",
    prompt_code="2",
    yaml=YAML,
    components=COMPONENTS,
    required=(YAML, SPEAKER_ONNX, LISTENER_ONNX),
    listening=(SPEAKER_ONNX, LISTENER_ONNX),
    telling="length_regulator.model.0.weight",
    steps=(EULER_STEPS, 7, 5),
    first_hops=(HOP_IDS, 50),
    ends_of_prompt=ENDS,
    read_spec=read_spec,
    costs=costs,
    load=CosyVoice1.load,
)
