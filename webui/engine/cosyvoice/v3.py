"""Fun-CosyVoice3 as a Family, and its loaded Model: CosyVoice2's with other networks in the same
places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ...types import CONVERT, MODES, SpeechRequest
from ..registry import GENERATIONS
from .checkpoint_v3 import PARTS, REINFORCED
from .config_v3 import YAML, read_spec
from .flow.dit_dims import DitDims
from .flow.dit_flow import DitFlow
from .frontend.audio_features import MEL_HOP_SAMPLES, OUTPUT_HZ, log_mel
from .frontend.instruction_formats import STYLES, cautions
from .frontend.prompt_builder_v3 import PromptBuilderV3
from .frontend.prompt_cache import CachedPrompt
from .frontend.prompt_encoder import SPEAKER_ONNX, PromptEncoderConfig
from .frontend.tokenizer_v3 import TAGS, TokenizerV3
from .model_spec import Capabilities, ModelSpec
from .v2 import SPEC as SPEC_V2
from .v2 import CosyVoice2
from .vocoder.causal_hift import CausalVocoder
from .vocoder.causal_stream import FADE_SAMPLES, WaveStream
from .vocoder.fixed_noise import fixed_noise

ENGINE, TOKENIZER_ONNX = GENERATIONS[YAML].engine, "speech_tokenizer_v3.onnx"
LANGUAGES = (
    "zh",
    "yue",
    "en",
    "ja",
    "ko",
    "de",
    "es",
    "fr",
    "it",
    "ru",
)  # nine of its published card, and one of the dialects it was told
FACTS = Capabilities((*MODES, CONVERT), LANGUAGES, STYLES, TAGS, text_in=True, told_clones=True)


def hear(x: Tensor) -> Tensor:
    """(n,) at 24 kHz -> (n // 480, 80) natural-log mel of the whole band; the second generation's
    ends at 8 kHz.
    """
    return log_mel(x, OUTPUT_HZ, 1920, MEL_HOP_SAMPLES, OUTPUT_HZ / 2)


@dataclass(frozen=True)
class CosyVoice3(CosyVoice2):
    tokenizer_kind, prompt_encoder_config = (
        TokenizerV3,
        PromptEncoderConfig(ENGINE, TOKENIZER_ONNX, mel=hear),
    )
    flow_kind, flow_dims, vocoder_kind = DitFlow, DitDims, CausalVocoder

    @classmethod
    def default_spec(cls) -> ModelSpec:
        return SPEC

    @property
    def facts(self) -> Capabilities:
        """No ready speakers are published for it; a directory may have some."""
        return FACTS.for_model(bool(self.presets), self.prompt_encoder.can_hear)

    def new_wave_stream(self, seed: int) -> WaveStream:
        """The noise is the same in every utterance, as the model was trained: no seed changes it.

        It begins softly: a cold vocoder clicks.
        """
        return WaveStream(self.vocoder, fixed_noise().at, FADE_SAMPLES)

    def prompt_builder(self, voice: CachedPrompt, request: SpeechRequest) -> PromptBuilderV3:
        return PromptBuilderV3(self, voice, request)


SPEC = replace(
    SPEC_V2,
    engine=GENERATIONS[YAML].engine,
    title=GENERATIONS[YAML].title,
    code="3",
    prompt_code="2",
    yaml=YAML,
    components=PARTS,
    required=(YAML, *SPEC_V2.required[1:-1], TOKENIZER_ONNX),
    clip_encoders=(SPEAKER_ONNX, TOKENIZER_ONNX),
    reinforced=REINFORCED,
    read_spec=read_spec,
    costs=CosyVoice3.costs,
    load=CosyVoice3.load,
    cautions=cautions,
)
