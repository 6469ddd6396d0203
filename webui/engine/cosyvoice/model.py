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

from ...types import CONVERT, MODES, SpeechRequest
from .contents import prompt_maker
from .device import INT8, STREAM_S, VOICE_S, MemoryPlan, Place, cores
from .dims import LmDims
from .family import EXPRESSIONS, Costs, Facts, Family, Progress, check_files
from .flow import Blocks, CausalFlow, FlowDims, FlowModel, FlowState, VoiceState, step_many
from .flow.dims import EULER_STEPS, FRAMES_PER_ID, LOOKAHEAD_IDS
from .flow.solver import Decoder
from .lm import SpeechLm
from .lm_seam import LanguageModel
from .onnx_lm import converted
from .pace import Hops, Profile
from .prompt import SPEAKER_ONNX, TOKENIZER_ONNX, Hearing, NoMaker, PromptMaker, VoicePrompt
from .script import Script
from .speakers import SPEAKERS, read_speakers
from .spec import CONFIG, YAML, ModelSpec, read_spec
from .tokenizer import EVENT_TAGS, TextTokenizer
from .vocoder import Vocoder, VocoderDims, VocoderState
from .vocoder.decoder import HiftLayers
from .voices import LiveVoice
from .weights import COMPONENTS, Parts, component_state, marked

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
FACTS = Facts((*MODES, CONVERT), LANGUAGES, STYLES, EVENT_TAGS, text_in=True)


@dataclass(frozen=True)
class CosyVoice2:
    """Also the base of a generation whose networks are others in the same places: it overrides what
    stands before `load`, and `placed`.
    """

    spec: ModelSpec
    place: Place
    tokenizer: TextTokenizer
    lm: LanguageModel
    flow: CausalFlow
    vocoder: HiftLayers
    maker: PromptMaker | NoMaker
    presets: dict[str, VoicePrompt]
    mark: str  # of the weights: voices made with other ones do not fit
    tokenizer_kind, hearing = TextTokenizer, Hearing()
    flow_kind, flow_dims, vocoder_kind = FlowModel, FlowDims, Vocoder

    @classmethod
    def its_family(cls) -> Family:
        return FAMILY

    @classmethod
    def load(
        cls,
        root: Path,
        place: Place,
        told: Progress = lambda share, en, zh: None,
        steps: int = EULER_STEPS,
        parts: Parts | None = None,
    ) -> Self:
        """steps: of the flow's solver. parts: its family's when None.

        Raises NotReady naming the first file or field that does not fit.
        """
        told(0.02, "Checking model files", "正在校验模型文件")
        family = replace(cls.its_family(), components=parts or cls.its_family().components)
        check_files(family, root, place.precision)
        spec, parts = family.read_spec(root, steps), family.components
        tokenizer = cls.tokenizer_kind(root)
        mark = marked(root, place.precision, parts)
        told(0.1, "Loading the voice networks", "正在载入声音网络")
        ready = presets(root)
        maker = prompt_maker(
            family, root, tokenizer, replace(cls.hearing, codes=spec.lm.speech_codes), ready
        )
        told(0.25, "Loading the language model", "正在载入语言模型")
        lm = language_model(root, spec.lm, place, told, parts)
        told(0.6, "Loading the acoustic model", "正在载入声学模型")
        flow = cls.flow_kind.of(
            cls.flow_dims.of(spec.flow),
            component_state(root, "flow", place.precision, parts),
            place.dtype,
            place.device,
        )
        told(0.8, "Loading the vocoder", "正在载入声码器")
        vocoder = cls.vocoder_kind.of(
            VocoderDims.of(spec.hift),
            component_state(root, "hift", "fp32", parts),
            torch.float32,
            place.device,
        )
        return cls(
            spec, place, tokenizer, lm, flow, vocoder.narrow(place.convolutions), maker, ready, mark
        ).placed(told)

    def placed(self, told: Progress) -> CosyVoice2:
        """As it computes where it is."""
        if self.place.device != "cuda" or not self.place.graphs:
            return self
        from .graphs.assemble import captured  # which knows this class

        return captured(self, told)

    @property
    def family(self) -> Family:
        return self.its_family()

    @property
    def facts(self) -> Facts:
        """The starters speak in the mode for presets too."""
        return FACTS.here(True, self.maker.can_hear)

    @property
    def guidance(self) -> Decoder:
        return self.flow.decoder

    def hops(self, first: int, pace: Profile) -> Hops:
        return Hops(
            first, self.flow.dims.chunk_size, pace.blocks, self.place.device != "cpu" or cores() > 1
        )

    def unpack(self, data: bytes) -> VoicePrompt:
        return VoicePrompt.unpack(data)

    def voice(self, prompt: VoicePrompt, first_hop: int) -> VoiceState:
        """The prompt's last 3 ids are heard as what follows it: then it ends on a block, and a
        request's first hop computes frames of its own only.
        """
        n = min(len(prompt.speech_ids), prompt.mel.shape[1] // FRAMES_PER_ID)
        base = max(0, n - LOOKAHEAD_IDS)
        blocks = Blocks.behind(base, first_hop, self.flow.dims.chunk_size)
        ahead = prompt.speech_ids[base:n] if base else ()
        return self.begun(
            prompt.speech_ids[:base],
            prompt.mel[:, : FRAMES_PER_ID * base],
            prompt.vector,
            blocks,
            store=self.place.store,
            ahead=ahead,
        )

    def begun(self, *given, **named) -> VoiceState:
        """Arguments of VoiceState.begun behind the model."""
        return VoiceState.begun(self.flow, *given, **named)

    def wave(self, seed: int) -> VocoderState:
        """A new stream of the vocoder."""
        return VocoderState(self.vocoder, seed)

    def script(self, voice: LiveVoice, request: SpeechRequest) -> Script:
        return Script(self, voice, request)

    def warm_prompt(self) -> VoicePrompt:
        return warm_prompt(self.spec.lm.speech_codes)

    @property
    def together(self) -> int:
        """Requests whose sound is made in one call, at most; on a CPU fewer, by profile."""
        return ROWS

    streams = 0  # each takes the memory it needs

    def flow_many(
        self, asked: Sequence[tuple[FlowState, Sequence[int], bool]]
    ) -> list[torch.Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""
        return step_many(asked)

    def wave_many(
        self, asked: Sequence[tuple[VocoderState, torch.Tensor, bool]]
    ) -> list[torch.Tensor]:
        """`push` of different streams."""
        return [wave.push(mel, final) for wave, mel, final in asked]

    def voices_budget(self, plan: MemoryPlan) -> tuple[int, int]:
        """Bytes that kept voices may take: where they are used, and where they wait.

        Here that is the same memory, so none waits.
        """
        return plan.voices_budget, 0


def language_model(
    root: Path, dims: LmDims, place: Place, told: Progress, parts: Parts = COMPONENTS
) -> LanguageModel:
    """Raises NotReady."""
    if place.lm == INT8 and not converted.fits(dims):
        log.warning(
            "heads of %d values are not for int8: torch computes the language model", dims.head_size
        )
    if place.lm != INT8 or not converted.fits(dims):
        return SpeechLm.of(
            dims, component_state(root, "llm", place.precision, parts), place.dtype, place.device
        )
    from .onnx_lm.runtime import Int8Lm  # only where it computes

    return Int8Lm(
        dims, converted.load(root, dims, converting(told), parts), place.lm_threads, min(2, cores())
    )


def converting(told: Progress) -> Callable[[float], None]:
    """How far the language model's conversion is, as a part of the whole start."""
    return lambda done: told(
        0.25 + 0.35 * done,
        "Converting the language model to int8, once for this model",
        "正在把语言模型转换为 int8，每个模型只需一次",
    )


def warm_prompt(codes: int, ids: int = 80, frames_per_id: int = FRAMES_PER_ID) -> VoicePrompt:
    """Random speech of so many ids, mel at the level of a voice, and a vector."""
    noise = torch.Generator().manual_seed(1)
    speech = tuple(torch.randint(0, codes, (ids,), generator=noise).tolist())
    return VoicePrompt(
        (),
        speech,
        torch.randn(1, frames_per_id * ids, 80, generator=noise) - 4,
        torch.randn(1, 192, generator=noise),
    )


def with_steps(spec: ModelSpec, steps: int) -> ModelSpec:
    return replace(spec, flow={**spec.flow, "euler_steps": steps})


def presets(root: Path, frames_per_id: int | None = FRAMES_PER_ID) -> dict[str, VoicePrompt]:
    """The ready speakers of a directory that has any. Raises NotReady."""
    if not (root / SPEAKERS).is_file():
        return {}
    return {
        name: VoicePrompt.of_speaker(entry, frames_per_id)
        for name, entry in read_speakers(root).items()
    }


def costs(spec: ModelSpec, place: Place) -> Costs:
    per_s = FRAMES_PER_S * FlowDims.of(spec.flow).bytes_per_frame(place.store.itemsize)
    return Costs(int(VOICE_S * per_s), int(STREAM_S * per_s), converted.memory(spec.lm))


FAMILY = Family(
    engine="cosyvoice2",
    title="CosyVoice2",
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
    listening=(SPEAKER_ONNX, TOKENIZER_ONNX),
    telling="encoder.up_embed.out.0.weight",
    steps=(EULER_STEPS, 7, 5),
    first_hops=(25, 10),
    read_spec=read_spec,
    costs=costs,
    load=CosyVoice2.load,
)
