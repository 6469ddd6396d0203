"""The loaded model: the three networks, the tokenizer, the two listening networks and the preset speakers, as one read-only object."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from .device import INT8, MemoryPlan, Place, cores
from .dims import LmDims
from .flow import FlowDims, FlowModel, FlowState, VoiceState, step_many
from .flow.dims import EULER_STEPS
from .lm import SpeechLm
from .lm_seam import LanguageModel
from .onnx_lm import converted
from .prompt import PromptMaker, VoicePrompt
from .speakers import read_speakers
from .spec import ModelSpec, check_files, read_spec
from .tokenizer import TextTokenizer
from .vocoder import Vocoder, VocoderDims, VocoderState
from .weights import component_state, source_mark

log = logging.getLogger(__name__)
ROWS = 4
Progress = Callable[[float, str, str], None]  # share done, words in English, words in Chinese


@dataclass(frozen=True)
class CosyVoice2:
    spec: ModelSpec
    place: Place
    tokenizer: TextTokenizer
    lm: LanguageModel
    flow: FlowModel
    vocoder: Vocoder
    maker: PromptMaker
    presets: dict[str, VoicePrompt]
    mark: str  # of the weights: voices made with other ones do not fit

    @classmethod
    def load(cls, root: Path, place: Place, told: Progress = lambda share, en, zh: None, steps: int = EULER_STEPS) -> CosyVoice2:
        """steps: of the flow's solver. Raises NotReady naming the first file or field that does not fit."""
        told(0.02, "Checking model files", "正在校验模型文件")
        check_files(root, place.precision)
        spec = with_steps(read_spec(root), steps)
        tokenizer = TextTokenizer(root)
        mark = hashlib.sha256("".join(source_mark(root, n, place.precision) for n in ("flow", "llm")).encode()).hexdigest()[:12]
        told(0.1, "Loading the voice networks", "正在载入声音网络")
        maker = PromptMaker(root, tokenizer, spec.lm.speech_codes)
        told(0.25, "Loading the language model", "正在载入语言模型")
        lm = language_model(root, spec.lm, place, told)
        told(0.6, "Loading the acoustic model", "正在载入声学模型")
        flow = FlowModel.of(FlowDims.of(spec.flow), component_state(root, "flow", place.precision), place.dtype, place.device)
        told(0.8, "Loading the vocoder", "正在载入声码器")
        vocoder = Vocoder.of(VocoderDims.of(spec.hift), component_state(root, "hift", "fp32"), torch.float32, place.device).narrow(place.convolutions)
        model = cls(spec, place, tokenizer, lm, flow, vocoder, maker, _presets(root), mark)
        if place.device != "cuda":
            return model
        from .graphs.assemble import captured  # which knows this class

        return captured(model, told)

    def voice(self, *given, **named) -> VoiceState:
        """What a voice costs the flow once, begun: arguments of VoiceState.begun behind the model."""
        return VoiceState.begun(self.flow, *given, **named)

    def wave(self, seed: int) -> VocoderState:
        """A new stream of the vocoder."""
        return VocoderState(self.vocoder, seed)

    @property
    def together(self) -> int:
        """Requests whose sound is made in one call, at most; on a CPU fewer, by profile."""
        return ROWS

    def flow_many(self, asked: Sequence[tuple[FlowState, Sequence[int], bool]]) -> list[torch.Tensor]:
        """`step` of requests of one shape. When it raises no step has been made."""
        return step_many(asked)

    def wave_many(self, asked: Sequence[tuple[VocoderState, torch.Tensor, bool]]) -> list[torch.Tensor]:
        """`push` of different streams."""
        return [wave.push(mel, final) for wave, mel, final in asked]

    def voices_budget(self, plan: MemoryPlan) -> tuple[int, int]:
        """Bytes that kept voices may take: where they are used, and where they wait. Here that is the same memory, so none waits."""
        return plan.voices_budget, 0


def language_model(root: Path, dims: LmDims, place: Place, told: Progress) -> LanguageModel:
    """Raises NotReady."""
    if place.lm == INT8 and not converted.fits(dims):
        log.warning("heads of %d values are not for int8: torch computes the language model", dims.head_size)
    if place.lm != INT8 or not converted.fits(dims):
        return SpeechLm.of(dims, component_state(root, "llm", place.precision), place.dtype, place.device)
    from .onnx_lm.runtime import Int8Lm  # only where it computes

    def share(done: float) -> None:
        told(0.25 + 0.35 * done, "Converting the language model to int8, once for this model", "正在把语言模型转换为 int8，每个模型只需一次")
    return Int8Lm(dims, converted.load(root, dims, share), place.lm_threads, min(2, cores()))


def with_steps(spec: ModelSpec, steps: int) -> ModelSpec:
    return replace(spec, flow={**spec.flow, "euler_steps": steps})


def _presets(root: Path) -> dict[str, VoicePrompt]:
    if not (root / "spk2info.pt").is_file():
        return {}
    return {name: VoicePrompt.of_speaker(entry) for name, entry in read_speakers(root).items()}
