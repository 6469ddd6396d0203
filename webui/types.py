"""The nouns everyone shares. Data only: no I/O, no web, no torch."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .errors import BadInput

if TYPE_CHECKING:  # whoever only reads texts loads no numpy
    import numpy as np

MODES = ("zero_shot", "cross_lingual", "instruct", "preset")
CONVERT = "convert"  # the words of a source clip in another voice; needs an engine that can
LANGUAGES = (
    "zh",
    "en",
    "ja",
    "ko",
    "yue",
    "de",
    "es",
    "fr",
    "it",
    "ru",
)  # primary BCP 47 tags that may be asked for; an engine may speak fewer
VOICE_ENGINES = ("natural", "instant")  # of the built-in voice
MAX_TEXT = 4096
FOREVER_DAYS = 36_500  # of keeping something: until it is deleted
MAX_INSTRUCTION = 1000
MAX_TRANSCRIPT = 1000  # characters: what a quick speaker says in 30 s


def part_seed(seed: int, index: int) -> int:
    """The seed of part `index` (a segment, a run of text that arrives) of what has `seed`.

    A hash, because sums meet: part 1 of seed 7 and part 0 of seed 8 would have the same random
    numbers.
    """
    digest = hashlib.blake2b(f"{seed} {index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def finite(value: float, param: str) -> float:
    """`value` as it came from outside.

    Raises BadInput for NaN and the infinities: they slip through comparisons, and JSON cannot hold
    them.
    """
    if not -math.inf < value < math.inf:
        raise BadInput("bad_field.not_finite", param=param)
    return value


def model_of(engine: str, voice_engine: str) -> str:
    """The `model` that asks for this engine, and for this one of its voices where it has
    several.
    """
    return f"{engine}-{voice_engine}" if voice_engine else engine


@dataclass(frozen=True)
class Voice:
    """A saved, starter or draft voice.

    `id` is always ours; `fingerprint` is the content hash of its reference samples.
    """

    id: str
    name: str
    language: str  # BCP 47 primary tag of the reference, "" when unknown
    transcript: str
    fingerprint: str
    duration_s: float
    created_at: float
    owner: str = "local"
    starter: bool = False
    draft: bool = False
    consent: str = ""
    name_zh: str = ""  # starters carry a name per language; for others `name` is used


@dataclass(frozen=True)
class Consent:
    """A recording in which somebody agrees to the use of their voice.

    `language`: BCP 47, as it was told.
    """

    id: str
    name: str
    language: str
    created_at: float
    owner: str


@dataclass(frozen=True)
class Prompt:
    """What one engine needs to speak as a voice, made once from the reference.

    `data` is safetensors, opaque outside that engine.
    """

    engine: str
    version: str
    fingerprint: str
    data: bytes
    notes: tuple[str, ...] = ()  # codes of fallbacks taken, e.g. "few_voiced_frames"


@dataclass(frozen=True)
class SpeechRequest:
    """One utterance to speak.

    Owns all its settings; an engine keeps nothing about it outside the iterator it returns.

    text: what the user typed; segments: the normalised sentences to speak, in order (filled by
      studio.wording).
    first_segment: the segments before it were spoken already; the others sound as they would after
      them.
    speed: 0.25-4.0, pitch kept. seed: 0 .. 2**63-1. language: BCP 47 primary tag ("zh", "yue",
      "en"...) or "auto".
    """

    id: str
    text: str
    voice: str
    mode: str = "zero_shot"
    instruction: str = ""
    language: str = "auto"
    speed: float = 1.0
    seed: int = 0
    priority: int = 0
    segments: tuple[str, ...] = ()
    transcript: str = ""  # of the reference, where an engine makes use of it
    # "natural" or "instant" of the built-in voice; "" = the default when it is accepted
    voice_engine: str = ""
    first_segment: int = 0

    def __post_init__(self):
        if self.mode not in (*MODES, CONVERT):
            raise BadInput("bad_mode.unknown", mode=self.mode[:40], modes=MODES, param="mode")
        if any(0xD800 <= ord(c) <= 0xDFFF for c in self.text + self.instruction):
            raise BadInput("bad_text.in_text", param="input")
        if not any(unicodedata.category(c)[0] in "LN" for c in self.text):
            raise BadInput("no_text", param="input")
        if len(self.text) > MAX_TEXT:
            raise BadInput(
                "too_long_text.request", max_text=MAX_TEXT, n=len(self.text), param="input"
            )
        if len(self.instruction) > MAX_INSTRUCTION:
            raise BadInput(
                "too_long_instruction", max_instruction=MAX_INSTRUCTION, param="instructions"
            )
        if not (math.isfinite(self.speed) and 0.25 <= self.speed <= 4.0):
            raise BadInput("bad_speed", param="speed")
        if self.voice_engine not in ("", *VOICE_ENGINES):
            raise BadInput(
                "bad_voice_engine",
                voice_engine=self.voice_engine[:40],
                voice_engines=VOICE_ENGINES,
                param="model",
            )
        if not 0 <= self.seed < 2**63:
            raise BadInput("bad_seed", param="seed")


@dataclass(frozen=True)
class Chunk:
    """The one unit of sound from engine to loudspeaker. samples: float32 mono, (n,), n > 0, within
    -1..1, at the engine's rate.
    """

    number: int
    samples: np.ndarray
    start: int  # index of samples[0] in the whole
    segment: int  # index into request.segments
    last: bool
    timings: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )  # stage -> seconds


class Segmentation(NamedTuple):
    """How an engine wants a text cut: each segment is one call of its language model (specification
    "First contact", section 2).
    unit: "token": a Han character, or as many letters as a token of other scripts has on average.
    """

    max_units: int  # a sentence that would make a segment longer begins the next one,
    min_units: int  # if there are more than so many before it
    merge_units: int  # a last segment shorter than this goes with the one before it
    unit: str = "token"


@dataclass(frozen=True)
class Abilities:
    """What an engine can do.

    `lanes`: how many streams it can step at the same moment (its processes or devices).
    """

    name: str
    version: str  # what has the same name and version makes the same samples
    sample_rate: int
    modes: tuple[str, ...]
    languages: tuple[str, ...]
    lanes: int = 1
    min_speed: float = 1.0  # speeds outside min..max are made by audio.tempo after the engine
    max_speed: float = 1.0
    # expected seconds of work per second of sound and lane; measured at warm-up where possible
    rtf: float = 0.5
    # of lanes that share one device: seconds of sound a second, all of them together; 0 = each lane
    # has its own (lanes / rtf)
    speed: float = 0.0
    tags: tuple[str, ...] = ()  # event tags the engine can speak, e.g. "[laughter]"
    styles: tuple[
        str,
        ...,
        # instruction words it follows, keys of the style chips: "sichuan", "happy", "whisper"...
    ] = ()
    presets: tuple[
        str, ...
    ] = ()  # names of voices the engine itself brings; Engine.preset(name) gives their prompt
    preset_modes: tuple[str, ...] = ()  # modes beside "preset" that these voices speak in
    basic: bool = False  # a draft voice: the page says so
    told_clones: bool = False  # zero_shot follows an instruction too
    # a prompt is made of the sound alone: transcript and language are no part of it
    hears_only: bool = False
    # what SpeechRequest.voice_engine may be, the default first -> its own rtf; empty = it makes no
    # difference
    voice_engines: Mapping[str, float] = field(default_factory=dict)
    voice_versions: Mapping[str, str] = field(
        default_factory=dict
    )  # of those of them that are versioned by themselves
    # of "natural": starting, ready, slow (offered, and not the default), broken; "" = this engine
    # has no such voice
    natural: str = ""
    # why "natural" is not the default, or not there (English, Chinese)
    voice_note: tuple[str, str] | None = None
    # it reads a text that is still arriving while it speaks: Engine.stream_text
    text_in: bool = False
    # that may be open at once, paused ones too, where there are places for so many only; 0 = any
    # number
    streams: int = 0
    # what it does not do as it should on this machine, and why (English, Chinese)
    note: tuple[str, str] | None = None
    # of its prompts, where that is another: much that changes the samples is no part of a prompt
    prompt_version: str = ""
    segmentation: Segmentation | None = (
        # None: a sentence is a segment, and the first clause is one of its own, so that it sounds
        # early
        None
    )

    def __post_init__(self):
        if self.segmentation is not None:  # a plain tuple when it came from another process
            object.__setattr__(self, "segmentation", Segmentation(*self.segmentation))
        object.__setattr__(self, "prompt_version", self.prompt_version or self.version)

    def version_of(self, voice_engine: str) -> str:
        """The version that the samples of a request with this `voice_engine` have."""
        return self.voice_versions.get(voice_engine, self.version)


@dataclass(frozen=True)
class Health:
    """Whether an engine can speak now, and why not, in words."""

    state: str  # starting, ready, busy, draining, broken
    reason: str = ""  # a sentence, English
    reason_zh: str = ""
    progress: float = 0.0  # 0..1 while starting


@dataclass(frozen=True)
class Take:
    """A finished (or stopped) stream: enough to play it, and to make it again.

    Sound lies in the store under `id`.
    """

    id: str
    request: SpeechRequest
    owner: str
    voice_name: str
    engine: str
    engine_version: str
    sample_rate: int
    n_samples: int
    created_at: float
    first_sound_ms: float | None = None
    rtf: float | None = None
    state: str = "done"  # done, cancelled, failed
    error: tuple[str, ...] = ()  # why it failed (English, Chinese)
    marks: tuple[
        tuple[int, int], ...
    ] = ()  # (segment, first sample); in one that is not whole the last segment broke off
    starred: bool = False
    peaks: tuple[float, ...] = ()  # 160 values 0..1 for the card
    trace: Mapping = field(
        default_factory=dict
    )  # milliseconds by stage, as studio.trace tells them; empty in old takes
    voice_notes: tuple[
        tuple[str, str], ...
    ] = ()  # why it was not the wished voice or mode that spoke (English, Chinese)

    @property
    def model(self) -> str:
        """Asks for the voice that spoke it, as `model` of another request."""
        return model_of(self.engine, self.request.voice_engine)
