"""Fun-CosyVoice3 as a Family, and its loaded Model: CosyVoice2's with other networks in the same
places.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...types import CONVERT, MODES, SpeechRequest
from ..cosyvoice.device import STREAM_S, VOICE_S, Place
from ..cosyvoice.family import Costs, Facts, Family, Progress
from ..cosyvoice.features import MEL_HOP_SAMPLES, OUTPUT_HZ, log_mel
from ..cosyvoice.flow.dims import EULER_STEPS
from ..cosyvoice.model import FRAMES_PER_S, CosyVoice2
from ..cosyvoice.onnx_lm import converted
from ..cosyvoice.prompt import SPEAKER_ONNX, Hearing
from ..cosyvoice.spec import CONFIG, ModelSpec
from ..cosyvoice.voices import LiveVoice
from .flow import DitDims, DitFlow
from .recipes import STYLES, cautions
from .script import Script
from .spec import TITLE, YAML, read_spec
from .tokenizer import TAGS, Tokenizer
from .vocoder import FADE_SAMPLES, CausalVocoder, WaveStream
from .vocoder.noise import fixed_noise
from .weights import PARTS, REINFORCED

ENGINE, TOKENIZER_ONNX = "cosyvoice3", "speech_tokenizer_v3.onnx"
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
FACTS = Facts((*MODES, CONVERT), LANGUAGES, STYLES, TAGS, text_in=True, told_clones=True)


def hear(x: Tensor) -> Tensor:
    """(n,) at 24 kHz -> (n // 480, 80) natural-log mel of the whole band; the second generation's
    ends at 8 kHz.
    """
    return log_mel(x, OUTPUT_HZ, 1920, MEL_HOP_SAMPLES, OUTPUT_HZ / 2)


@dataclass(frozen=True)
class CosyVoice3(CosyVoice2):
    tokenizer_kind, hearing = Tokenizer, Hearing(ENGINE, TOKENIZER_ONNX, mel=hear)
    flow_kind, flow_dims, vocoder_kind = DitFlow, DitDims, CausalVocoder

    @classmethod
    def its_family(cls) -> Family:
        return FAMILY

    @property
    def facts(self) -> Facts:
        """No ready speakers are published for it; a directory may have some."""
        return FACTS.here(bool(self.presets), self.maker.can_hear)

    def placed(self, told: Progress) -> CosyVoice3:
        """As it computes where it is."""
        if self.place.device != "cuda" or not self.place.graphs:
            return self
        from .graphs import replaying  # which knows this class

        return replaying(self, told)

    def wave(self, seed: int) -> WaveStream:
        """The noise is the same in every utterance, as the model was trained: no seed changes it.

        It begins softly: a cold vocoder clicks.
        """
        return WaveStream(self.vocoder, fixed_noise().at, FADE_SAMPLES)

    def script(self, voice: LiveVoice, request: SpeechRequest) -> Script:
        return Script(self, voice, request)


def costs(spec: ModelSpec, place: Place) -> Costs:
    per_s = FRAMES_PER_S * DitDims.of(spec.flow).bytes_per_frame(place.store.itemsize)
    return Costs(int(VOICE_S * per_s), int(STREAM_S * per_s), converted.memory(spec.lm))


FAMILY = Family(
    engine=ENGINE,
    title=TITLE,
    code="3",
    prompt_code="2",
    yaml=YAML,
    components=PARTS,
    required=(
        YAML,
        CONFIG,
        "CosyVoice-BlankEN/vocab.json",
        "CosyVoice-BlankEN/merges.txt",
        SPEAKER_ONNX,
        TOKENIZER_ONNX,
    ),
    listening=(SPEAKER_ONNX, TOKENIZER_ONNX),
    reinforced=REINFORCED,
    telling="decoder.estimator.time_embed.time_mlp.0.weight",
    steps=(EULER_STEPS, 7, 5),
    first_hops=(25, 10),
    read_spec=read_spec,
    costs=costs,
    load=CosyVoice3.load,
    cautions=cautions,
)
